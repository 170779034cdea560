
// The timeline: calls of each thread as bars, one row for each level.
function timeline() {
  const box = $("time-box"), canvas = $("time"), space = $("time-space");
  const row = 16, label = 20, axis = 22, numbers = 5, ends = ["", ", no return was seen", ", has not returned"];
  if (data.threads.length === 0) {
    without("time-part", "Nothing is in it: the recording has no calls with times.");
    return null;
  }
  const bars = [];
  let tall = axis;
  for (const t of data.threads) {
    t.top = tall;
    t.list = [];
    for (let i = 0, at = 0; i < t.bars.length; i += numbers) {
      at += t.bars[i];
      const b = { thread: t, from: at, time: t.bars[i + 1], depth: t.bars[i + 2], name: data.names[t.bars[i + 3]], end: t.bars[i + 4] };
      b.hue = hue(b.name);
      t.list.push(b);
      bars.push(b);
    }
    tall += label + t.depth * row + 4;
  }
  const all = [data.span[0], Math.max(data.span[1], data.span[0] + 1)];
  let [from, to] = all, width = 0, height = 0, chosen = null;
  const x = t => (t - from) / (to - from) * width;
  const at = px => from + px / width * (to - from);
  const text = b => b.name + ": " + time(b.time) + ", from " + time(b.from) + ", " + b.thread.name + ends[b.end];

  function draw() {
    width = box.clientWidth;
    height = Math.min(tall, 458);
    if (width === 0) return;
    space.style.height = tall + "px";
    canvas.style.height = height + "px";
    const g = sized(canvas, width, height), up = box.scrollTop;
    const ink = color("--ink"), soft = color("--soft"), line = color("--line"), paper = color("--paper");
    const light = color("--flame-l"), on = color("--flame-ink"), found = color("--found");
    const gap = step(to - from, Math.max(2, width / 110));
    g.fillStyle = line;
    for (let t = Math.ceil(from / gap) * gap; t <= to; t += gap) g.fillRect(Math.round(x(t)), axis, 1, height);
    for (const t of data.threads) {
      const top = t.top - up;
      if (top > height || top + label + t.depth * row < 0) continue;
      g.fillStyle = soft;
      g.fillText(t.name + " · " + plural(t.calls, "call"), 6, top + label / 2);
      for (const b of t.list) {
        const left = x(b.from), right = x(b.from + b.time);
        if (right < 0 || left > width) continue;
        const l = Math.max(left, -2), w = Math.max(Math.min(right, width + 2) - l, 1), y = top + label + b.depth * row;
        g.globalAlpha = query !== "" && !matches(b.name) ? 0.35 : 1;
        g.fillStyle = `hsl(${b.hue} 65% ${light})`;
        g.fillRect(l, y, w > 3 ? w - 1 : w, row - 1);
        if (query !== "" && matches(b.name)) {
          g.fillStyle = found;
          g.fillRect(l, y + row - 4, w, 3);
        }
        if (w > 24) {
          g.fillStyle = on;
          const inside = Math.max(l, 0), room = Math.floor((l + w - inside - 6) / 7.3);
          if (room > 1) g.fillText(b.name.length > room ? b.name.slice(0, room - 1) + "…" : b.name, inside + 3, y + row / 2);
        }
        if (b === chosen) {
          g.strokeStyle = ink;
          g.lineWidth = 2;
          g.strokeRect(l, y, Math.max(w, 3), row - 1);
        }
      }
      g.globalAlpha = 1;
    }
    g.fillStyle = paper;
    g.fillRect(0, 0, width, axis);
    g.fillStyle = line;
    g.fillRect(0, axis - 1, width, 1);
    g.fillStyle = ink;
    for (let t = Math.ceil(from / gap) * gap; t <= to; t += gap) {
      if (x(t) < width - 50) g.fillText(mark(t, gap), x(t) + 3, axis / 2);
    }
    $("time-text").textContent = "From " + time(from) + " to " + time(to) + ", " + time(to - from) + " of " + time(all[1] - all[0]) + "; 0 is the first hit or call.";
  }
  // mark is a time of the axis, as exact as the distance to the next.
  function mark(t, gap) {
    const [unit, size] = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]].find(u => Math.max(Math.abs(to), gap) >= u[1]) || ["ns", 1];
    return (t / size).toFixed(Math.max(0, Math.ceil(-Math.log10(gap / size) - 1e-9))) + " " + unit;
  }
  const redraw = later(draw);
  function show(a, b) {
    const span = clamp(b - a, 10, all[1] - all[0]);
    from = clamp(a, all[0], Math.max(all[0], all[1] - span));
    to = from + span;
    redraw();
  }
  function zoom(by, middle = (from + to) / 2) { show(middle - (middle - from) * by, middle + (to - middle) * by); }
  function choose(b) {
    if (!b) return;
    chosen = b;
    const y = b.thread.top + label + b.depth * row;
    if (y < box.scrollTop + axis + label || y + row > box.scrollTop + height) box.scrollTop = y - axis - label;
    if (b.from > to || b.from + b.time < from) show(b.from - (to - from) / 2, b.from + (to - from) / 2);
    say(text(b));
    redraw();
  }
  function enter(b) {
    choose(b);
    if (b) show(b.from - b.time * 0.05 - 1, b.from + b.time * 1.05 + 1);
  }
  // under is the bar at a place of the canvas; of some that are narrow the longest.
  function under(e) {
    const r = canvas.getBoundingClientRect(), px = e.clientX - r.left, py = e.clientY - r.top;
    if (py < axis) return null;
    const y = py + box.scrollTop;
    const t = data.threads.find(t => y >= t.top + label && y < t.top + label + t.depth * row);
    if (!t) return null;
    const depth = Math.floor((y - t.top - label) / row), slack = 2 / width * (to - from);
    return t.list.filter(b => b.depth === depth && b.from - slack <= at(px) && b.from + b.time + slack >= at(px)).sort((a, b) => b.time - a.time)[0];
  }
  let drag = null;
  canvas.addEventListener("pointerdown", e => {
    drag = { px: e.clientX, from, to, moved: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", e => {
    if (!drag) {
      const b = under(e);
      if (b) say(text(b));
      return;
    }
    const by = (e.clientX - drag.px) / width * (drag.to - drag.from);
    drag.moved = drag.moved || Math.abs(e.clientX - drag.px) > 3;
    if (drag.moved) show(drag.from - by, drag.to - by);
  });
  canvas.addEventListener("pointerup", e => {
    if (drag && !drag.moved) enter(under(e));
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  box.addEventListener("wheel", e => {
    if (!e.ctrlKey) return;
    e.preventDefault();
    zoom(e.deltaY > 0 ? 1.25 : 0.8, at(e.clientX - canvas.getBoundingClientRect().left));
  }, { passive: false });
  box.addEventListener("scroll", redraw);
  box.addEventListener("keydown", e => {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    const some = (to - from) / 8;
    switch (e.key) {
      case "ArrowLeft": show(from - some, to - some); break;
      case "ArrowRight": show(from + some, to + some); break;
      case "ArrowUp": box.scrollTop -= 40; break;
      case "ArrowDown": box.scrollTop += 40; break;
      case "+": case "=": zoom(0.7); break;
      case "-": zoom(1.4); break;
      case "]": choose(bars[(bars.indexOf(chosen) + 1) % bars.length]); break;
      case "[": choose(bars[(bars.indexOf(chosen) - 1 + bars.length) % bars.length] || bars[0]); break;
      case "Enter": enter(chosen); break;
      case "Escape": show(...all); break;
      default: return;
    }
    e.preventDefault();
  });
  $("time-in").addEventListener("click", () => zoom(0.5));
  $("time-out").addEventListener("click", () => zoom(2));
  $("time-all").addEventListener("click", () => show(...all));
  listeners.push(() => { redraw(); });
  new ResizeObserver(redraw).observe(box);
  draw();
  return redraw;
}
