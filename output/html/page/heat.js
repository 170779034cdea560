
// The heat map: when calls ended, across; how long they took, upwards.
function heatMap() {
  const canvas = $("heat"), choice = $("heat-choice"), heat = data.heat;
  if (!heat) {
    without("heat-part", "Nothing is in it: no call in the recording has ended.");
    return null;
  }
  const left = 74, bottom = 24, pad = 8;
  const rows = heat.lows.length - 1;
  let columns = 1, cells = new Map(), most = 1, here = null;
  for (let i = 0; i < heat.maps[0].cells.length; i += 3) columns = Math.max(columns, heat.maps[0].cells[i] + 1);
  heat.maps.forEach((m, i) => choice.append(new Option(m.name, i)));

  function take(m) {
    cells = new Map();
    most = 1;
    for (let i = 0; i < m.cells.length; i += 3) {
      cells.set(m.cells[i + 1] * columns + m.cells[i], m.cells[i + 2]);
      most = Math.max(most, m.cells[i + 2]);
    }
  }
  const size = () => [(canvas.clientWidth - left - pad) / columns, (canvas.clientHeight - bottom - pad) / rows];
  function draw() {
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (width === 0) return;
    const g = sized(canvas, width, height), [w, h] = size(), base = height - bottom;
    const ink = color("--ink"), line = color("--line"), dark = matchMedia("(prefers-color-scheme: dark)").matches;
    for (const [k, n] of cells) {
      const x = k % columns, y = Math.floor(k / columns), part = Math.log(n + 1) / Math.log(most + 1);
      g.fillStyle = dark ? `hsl(${40 - 25 * part} 90% ${22 + 53 * part}%)` : `hsl(${45 - 40 * part} 85% ${82 - 47 * part}%)`;
      g.fillRect(left + x * w, base - (y + 1) * h, Math.max(w - (w > 4 ? 1 : 0), 1), Math.max(h - (h > 4 ? 1 : 0), 1));
    }
    g.fillStyle = line;
    g.fillRect(left, base, width - left - pad, 1);
    g.fillRect(left - 1, pad, 1, base - pad);
    g.fillStyle = ink;
    g.textAlign = "right";
    const every = Math.max(1, Math.ceil(18 / h));
    for (let y = 0; y <= rows; y += every) g.fillText(time(heat.lows[y]), left - 6, clamp(base - y * h, pad + 4, base));
    g.textAlign = "left";
    const span = columns * heat.width, gap = step(span, Math.max(2, (width - left) / 120));
    for (let t = 0; t <= span; t += gap) {
      const x = left + t / heat.width * w;
      g.fillRect(x, base, 1, 5);
      if (x < width - 60) g.fillText(time(t), x + 4, base + 13);
    }
    if (here) {
      g.strokeStyle = ink;
      g.lineWidth = 2;
      g.strokeRect(left + here.x * w - 1, base - (here.y + 1) * h - 1, w + 1, h + 1);
    }
    const name = heat.maps[choice.value].name;
    $("heat-text").textContent = name + ": a column is " + time(heat.width) + "; the fullest cell has " + plural(most, "call") + ".";
  }
  const redraw = later(draw);
  function tell(x, y) {
    const n = cells.get(y * columns + x) || 0;
    say(plural(n, "call") + " of " + time(heat.lows[y]) + " to " + time(heat.lows[y + 1]) + ", ended from " + time(x * heat.width) + " to " + time((x + 1) * heat.width));
  }
  canvas.addEventListener("pointermove", e => {
    const r = canvas.getBoundingClientRect(), [w, h] = size();
    const x = Math.floor((e.clientX - r.left - left) / w), y = Math.floor((r.height - bottom - (e.clientY - r.top)) / h);
    if (x >= 0 && x < columns && y >= 0 && y < rows) tell(x, y);
  });
  canvas.addEventListener("keydown", e => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
    if (e.key === "Escape") here = null;
    else if (!by || e.ctrlKey || e.altKey || e.metaKey) return;
    else {
      here = here ? { x: clamp(here.x + by[0], 0, columns - 1), y: clamp(here.y + by[1], 0, rows - 1) } : { x: 0, y: 0 };
      tell(here.x, here.y);
    }
    e.preventDefault();
    redraw();
  });
  choice.addEventListener("change", () => { take(heat.maps[choice.value]); redraw(); });
  new ResizeObserver(redraw).observe(canvas);
  take(heat.maps[0]);
  choice.value = "0";
  draw();
  return redraw;
}
