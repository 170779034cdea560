
// The flame graph: one element for each path that is wide enough to be seen.
function flameGraph() {
  const box = $("flame"), high = 20, numbers = 6, narrowest = 2;
  const nodes = [];
  for (let i = 0, path = []; i < data.flame.length; i += numbers) {
    const [depth, name, value, calls, was, merged] = data.flame.slice(i, i + numbers);
    const n = { depth, name: data.names[name], value, calls, was, merged, below: [], up: path[depth - 1] };
    if (n.up) n.up.below.push(n);
    path[depth] = n;
    nodes.push(n);
  }
  const root = nodes[0];
  if (!root || root.value === 0) {
    without("flame-part", "Nothing is in it: the recording has no calls, and no stacks.");
    return null;
  }
  let zoomed = root, chosen = root;
  const elements = new Map();
  const part = (v, all) => all > 0 ? v / all : 0;

  // change is how a node's part of all differs from before: -1 to 1.
  function change(n) {
    const a = part(n.value, root.value), b = part(n.was, root.was);
    return a + b === 0 ? 0 : (a - b) / Math.max(a, b);
  }
  function text(n) {
    const amount = v => data.weight ? weight(v) : data.timed ? time(v) : plural(v, "hit");
    let s = (n.merged ? plural(n.merged, "path") + " too small to show" : n.name) + ": " + amount(n.value);
    s += ", " + (100 * part(n.value, root.value)).toFixed(2) + " % of all";
    if (zoomed !== root) s += ", " + (100 * part(n.value, zoomed.value)).toFixed(2) + " % of " + zoomed.name;
    if ((data.timed || data.weight) && n.calls > 0) s += "; " + plural(n.calls, data.timed ? "call" : "hit");
    if (data.diff) s += "; before " + amount(n.was) + ", " + (100 * part(n.was, root.was)).toFixed(2) + " % of all then";
    return s;
  }
  function paint(e, n) {
    if (n.merged) return;
    if (!data.diff) {
      e.style.setProperty("--h", hue(n.name));
      return;
    }
    const c = change(n);
    e.style.setProperty("--h", c > 0 ? 5 : 215);
    e.style.setProperty("--s", Math.round(clamp(Math.abs(c) * 1.6, 0, 1) * 80) + "%");
  }
  function element(n, from, wide, width) {
    const e = document.createElement("div");
    e.setAttribute("role", "treeitem");
    e.setAttribute("aria-level", n.depth + 1);
    e.setAttribute("aria-label", text(n));
    if (n.below.length > 0) e.setAttribute("aria-expanded", "true");
    e.tabIndex = -1;
    e.style.left = from / width * 100 + "%";
    e.style.width = wide / width * 100 + "%";
    e.style.top = n.depth * high + "px";
    if (wide > 18) e.textContent = n.merged ? "small ones" : n.name;
    e.classList.toggle("merged", n.merged > 0);
    e.classList.toggle("found", matches(n.name));
    paint(e, n);
    e.node = n;
    elements.set(n, e);
    return e;
  }
  function draw() {
    const width = box.clientWidth, list = [], focused = box.contains(document.activeElement);
    if (width === 0) return;
    elements.clear();
    for (let n = zoomed.up; n; n = n.up) {
      const e = element(n, 0, width, width);
      e.classList.add("above");
      list.unshift(e);
    }
    let deepest = zoomed.depth;
    const down = (n, from, wide) => {
      if (wide < narrowest) return;
      list.push(element(n, from, wide, width));
      deepest = Math.max(deepest, n.depth);
      for (const b of n.below) {
        const w = n.value > 0 ? wide * b.value / n.value : 0;
        down(b, from, w);
        from += w;
      }
    };
    down(zoomed, 0, width);
    box.style.height = (deepest + 1) * high + "px";
    box.replaceChildren(...list);
    if (!elements.has(chosen)) chosen = zoomed;
    elements.get(chosen).tabIndex = 0;
    if (focused) elements.get(chosen).focus({ preventScroll: true });
    box.classList.toggle("searching", query !== "");
  }
  function choose(n) {
    if (!n || !elements.has(n)) return;
    elements.get(chosen).tabIndex = -1;
    chosen = n;
    const e = elements.get(n);
    e.tabIndex = 0;
    e.focus({ preventScroll: true });
    e.scrollIntoView({ block: "nearest" });
    say(text(n));
  }
  function zoom(n) {
    zoomed = n.merged ? n.up : n;
    chosen = zoomed;
    draw();
    choose(zoomed);
  }
  // beside is the next node of the same depth, to the left or right.
  function beside(n, by) {
    const shown = [...elements.keys()].filter(o => o.depth === n.depth);
    return shown[shown.indexOf(n) + by];
  }
  const widest = n => n.below.filter(b => elements.has(b)).sort((a, b) => b.value - a.value)[0];
  box.addEventListener("click", e => { if (e.target.node) zoom(e.target.node); });
  box.addEventListener("mouseover", e => { if (e.target.node) say(text(e.target.node)); });
  box.addEventListener("focusin", e => { if (e.target.node) say(text(e.target.node)); });
  box.addEventListener("keydown", e => {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    switch (e.key) {
      case "ArrowUp": choose(chosen.up); break;
      case "ArrowDown": choose(widest(chosen)); break;
      case "ArrowLeft": choose(beside(chosen, -1)); break;
      case "ArrowRight": choose(beside(chosen, 1)); break;
      case "Home": choose(root); break;
      case "Enter": case " ": zoom(chosen); break;
      case "Escape": zoom(zoomed.up || root); break;
      default: return;
    }
    e.preventDefault();
  });
  // found is how much is in paths with a function that is searched for, each counted once.
  listeners.push(() => {
    draw();
    let sum = 0, many = 0;
    const down = n => {
      if (matches(n.name)) {
        sum += n.value;
        many++;
      } else n.below.forEach(down);
    };
    down(root);
    return plural(many, "path") + ", " + (100 * sum / root.value).toFixed(1) + " % of all";
  });
  $("flame-unit").textContent = data.weight ? "sum of " + data.weight + " there" : data.timed ? "time that was spent there" : "number of hits there";
  if (data.diff) {
    const legend = (kind, what) => {
      const key = document.createElement("span");
      key.className = "key " + kind;
      $("flame-legend").append(key, " " + what + " ");
    };
    legend("more", "a larger part of all than before;");
    legend("less", "a smaller one.");
  }
  new ResizeObserver(later(draw)).observe(box);
  draw();
  return draw;
}
