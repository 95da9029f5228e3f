"use strict";
// Charts of report.html: one per measure with all visible runs, drawn when scrolled to.
// Elements are created by name with text content, never from strings of HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = 8, WIDE = 360, HIGH = 220;
const LEFT = 50, RIGHT = 8, TOP = 6, BOTTOM = 32;
const MANY = 24; // most curves with thick lines in a chart
const look = { // the reader's choices
  shown: data.names.map(() => true),
  colour: data.names.map((_, run) => run % COLOURS),
  axis: 0, log: false, active: -1,
};
const charts = [...document.querySelectorAll(".chart")].map(chart);
const seen = new IntersectionObserver(
  (entries) => entries.forEach((entry) => {
    const one = charts[entry.target.dataset.measure];
    one.near = entry.isIntersecting;
    if (one.near) draw(one);
  }),
  { rootMargin: "300px" },
);
charts.forEach((one) => seen.observe(one.figure));
addEventListener("beforeprint", () => charts.forEach(draw));

function chart(figure) {
  const one = {
    figure, measure: data.measures[figure.dataset.measure],
    says: figure.querySelector("span"), whose: figure.querySelector("i"), place: figure.querySelector("div"),
    near: false, drawn: false, curves: null, svg: null, active: null,
  };
  figure.addEventListener("pointermove", (event) => light(nearest(one, event)));
  figure.addEventListener("pointerleave", () => light(-1));
  return one;
}

// Redraw charts near the viewport; others when they come near.
function redraw() {
  charts.forEach((one) => { one.drawn = false; if (one.near) draw(one); });
}

// Highlight a run in every chart and in the table; -1 for none.
function light(run) {
  if (run === look.active) return;
  for (const [old, on] of [[look.active, false], [run, true]]) {
    document.querySelector(`tr[data-run="${old}"]`)?.classList.toggle("active", on);
  }
  look.active = run;
  charts.forEach((one) => { if (one.drawn) lit(one); });
}

function lit(one) {
  const curve = one.curves.find((each) => each.run === look.active);
  const on = curve !== undefined && look.shown[curve.run];
  one.svg.classList.toggle("lit", on);
  one.active.setAttribute("d", on ? path(one, curve) : "");
  if (on) one.active.setAttribute("class", `curve active c${look.colour[curve.run]}`);
  one.says.textContent = on ? `${short(curve.ys[curve.ys.length - 1])} at the end` : "";
  one.whose.textContent = on ? data.names[curve.run] : "";
}

// Numbers of a measure: for each run its axes, then its values, as float32.
function unpacked(measure) {
  const text = atob(measure.data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const all = new Float32Array(bytes.buffer), axes = data.axes.length;
  let at = 0;
  return measure.runs.map((run, i) => {
    const size = measure.points[i];
    const part = (k) => all.subarray(at + k * size, at + (k + 1) * size);
    const curve = { run, xs: data.axes.map((_, k) => part(k)), ys: part(axes) };
    at += (axes + 1) * size;
    return curve;
  });
}

function draw(one) {
  if (one.drawn) return;
  one.curves ??= unpacked(one.measure);
  const shown = one.curves.filter((curve) => look.shown[curve.run]);
  const x = extent(shown, (curve) => curve.xs[look.axis], false);
  const y = extent(shown, (curve) => curve.ys, look.log);
  one.x = scale(x, LEFT, WIDE - RIGHT, false);
  one.y = scale(y, HIGH - BOTTOM, TOP, look.log);
  one.svg = make("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" });
  one.svg.setAttribute("aria-label", described(one, shown));
  if (shown.length > MANY) one.svg.classList.add("many");
  axes(one);
  const paths = Array.from({ length: COLOURS }, () => []);
  shown.forEach((curve) => paths[look.colour[curve.run]].push(path(one, curve)));
  paths.forEach((parts, k) => {
    if (parts.length) one.svg.append(make("path", { class: `curve c${k}`, d: parts.join("") }));
  });
  one.svg.append(one.active = make("path", { class: "curve active", d: "" }));
  one.place.replaceChildren(one.svg);
  one.drawn = true;
  lit(one);
}

function extent(curves, of, log) {
  let low = Infinity, high = -Infinity;
  for (const curve of curves) {
    for (const value of of(curve)) {
      if (log && value <= 0) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low > high ? [log ? 1 : 0, log ? 10 : 1] : [low, high];
}

// Map numbers to positions; a single number is in the middle.
function scale([low, high], from, to, log) {
  const f = log ? Math.log10 : (value) => value;
  const a = f(low), b = f(high), flat = a === b;
  const place = (value) => flat ? (from + to) / 2 : from + (to - from) * (f(value) - a) / (b - a);
  return { place, ticks: ticks(low, high, log) };
}

function ticks(low, high, log) {
  if (low === high) return [[low, short(low)]];
  if (log && high / low >= 10) {
    const first = Math.ceil(Math.log10(low)), last = Math.floor(Math.log10(high));
    const every = Math.max(1, Math.ceil((last - first) / 5)), found = [];
    for (let k = first; k <= last; k += every) found.push([10 ** k, short(10 ** k)]);
    return found;
  }
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((k) => k * power >= rough) * power;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), found = [];
  const plain = Math.max(Math.abs(low), Math.abs(high)) < 1e4 && digits <= 4;
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-9) && found.length < 9; k++) {
    found.push([k * step, plain ? (k * step).toFixed(digits) : short(k * step)]);
  }
  return found;
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e4 && size < 1e15) {
    return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 4 });
  }
  return size && (size < 1e-3 || size >= 1e15)
    ? value.toExponential(2).replace(/\.?0*e\+?/, "e") : String(+value.toPrecision(4));
}

function axes(one) {
  for (const [value, text] of one.y.ticks) {
    const y = one.y.place(value);
    one.svg.append(make("path", { class: "grid", d: `M${LEFT} ${y}H${WIDE - RIGHT}` }));
    one.svg.append(label(text, LEFT - 6, y + 4, "end"));
  }
  for (const [value, text] of one.x.ticks) {
    const x = one.x.place(value), far = x > WIDE - 24;
    one.svg.append(label(text, far ? WIDE - 2 : x, HIGH - BOTTOM + 14, far ? "end" : "middle"));
  }
  one.svg.append(label(data.axes[look.axis], (LEFT + WIDE) / 2, HIGH - 4, "middle"));
}

function label(text, x, y, anchor) {
  const node = make("text", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
}

function path(one, curve) {
  const xs = curve.xs[look.axis], ys = curve.ys;
  let text = "", pen = "M";
  for (let i = 0; i < ys.length; i++) {
    if (Number.isNaN(xs[i]) || (look.log && ys[i] <= 0)) { pen = "M"; continue; }
    text += `${pen}${one.x.place(xs[i]).toFixed(1)} ${one.y.place(ys[i]).toFixed(1)}`;
    pen = "L";
  }
  // A single point would not be seen.
  return ys.length === 1 && text ? `${text}m-2 0h4` : text;
}

function described(one, shown) {
  const what = `${one.measure.name} against ${data.axes[look.axis]}, ${shown.length} runs`;
  const ends = shown.map((curve) => [curve.ys[curve.ys.length - 1], data.names[curve.run]]);
  if (!ends.length) return what;
  ends.sort((a, b) => a[0] - b[0]);
  const [low, high] = [ends[0], ends[ends.length - 1]];
  return `${what}; at the end from ${short(low[0])} (${low[1]}) to ${short(high[0])} (${high[1]})`;
}

// The run whose point is nearest to the pointer, if one is near.
function nearest(one, event) {
  if (!one.drawn) return -1;
  const box = one.svg.getBoundingClientRect(), zoom = WIDE / box.width;
  const px = (event.clientX - box.left) * zoom, py = (event.clientY - box.top) * zoom;
  let best = 30 ** 2, found = -1;
  for (const curve of one.curves) {
    if (!look.shown[curve.run]) continue;
    const xs = curve.xs[look.axis];
    for (let i = 0; i < xs.length; i++) {
      const away = (one.x.place(xs[i]) - px) ** 2 + (one.y.place(curve.ys[i]) - py) ** 2;
      if (away < best) [best, found] = [away, curve.run];
    }
  }
  return found;
}

function make(name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  return node;
}
