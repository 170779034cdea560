"use strict";

// What all parts of the page use.
const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent);

// say shows what something is, in the line at the bottom.
const say = text => { $("status").textContent = text; };

// time is a number of nanoseconds with three digits or so and a unit.
function time(ns) {
  if (ns === 0) return "0";
  const less = ns < 0 ? "−" : "";
  ns = Math.abs(ns);
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    if (ns >= size * 0.9995) return less + Number((ns / size).toPrecision(unit === "s" && ns >= 1e11 ? 5 : 3)) + " " + unit;
  }
  return less + Number(ns.toPrecision(3)) + " ns";
}

// weight is a sum of the value that paths are weighed by.
function weight(v) {
  if (!data.bytes) return count(v) + " " + data.weight;
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (v >= size) return Number((v / size).toPrecision(3)) + " " + unit;
  }
  return plural(v, "byte");
}

const count = n => n.toLocaleString("en-US");
const plural = (n, word) => count(n) + " " + word + (n === 1 ? "" : "s");

// hue gives a name a colour that is the same in every page.
function hue(name) {
  let h = 2166136261;
  for (let i = 0; i < name.length; i++) h = Math.imul(h ^ name.charCodeAt(i), 16777619);
  return (h >>> 0) % 50 + 8 + ((h >>> 16) % 4 === 0 ? 110 : 0);
}

// color is a colour of the page, as it is now: light or dark.
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const clamp = (v, low, high) => Math.max(low, Math.min(high, v));

// sized makes a canvas as large as it is shown, with as many dots as the screen has.
function sized(canvas, width, height) {
  const dots = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * dots);
  canvas.height = Math.round(height * dots);
  const g = canvas.getContext("2d");
  g.setTransform(dots, 0, 0, dots, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = "12px ui-monospace, monospace";
  g.textBaseline = "middle";
  return g;
}

// later makes one drawing of many that are asked for at once.
function later(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  };
}

// step is a round distance between marks of an axis, for so many of them.
function step(span, marks) {
  const raw = span / marks, size = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map(n => n * size).find(n => n >= raw);
}

// without hides a part that the recording has nothing for, and says why.
function without(part, why) {
  for (const e of [...$(part).children].slice(1)) e.remove();
  const p = document.createElement("p");
  p.className = "help";
  p.textContent = why;
  $(part).append(p);
}

// query is what is searched for; parts that show names listen.
let query = "";
const listeners = [];
const matches = name => query !== "" && name.toLowerCase().includes(query);
