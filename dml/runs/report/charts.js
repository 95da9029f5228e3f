"use strict";
// Charts of report.html: one per measure with all visible runs, drawn when scrolled to.
// Elements are created by name with text content, never from strings of HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = 8, STYLES = 3 * COLOURS; // of lines: each colour solid, dashed and dotted
const WIDTH = 360, HEIGHT = 220;
const LEFT = 50, RIGHT = 8, TOP = 6, BOTTOM = 32;
const MANY = 24; // a chart with more curves has thin lines
const view = { // what the reader has selected
  shown: data.names.map(() => true),
  colour: data.names.map((_, run) => run % STYLES),
  axis: 0, log: false, active: -1, mean: false,
};
const styleOf = (k) => `c${k % COLOURS} d${Math.floor(k / COLOURS)}`;
const charts = [...document.querySelectorAll(".chart")].map(chart);
const observer = new IntersectionObserver(
  (entries) => entries.forEach((entry) => {
    const plot = charts[entry.target.dataset.measure];
    plot.near = entry.isIntersecting;
    if (plot.near) draw(plot);
  }),
  { rootMargin: "300px" },
);
charts.forEach((plot) => observer.observe(plot.figure));
addEventListener("beforeprint", () => charts.forEach(draw));

function chart(figure) {
  const plot = {
    figure, measure: data.measures[figure.dataset.measure],
    valueText: figure.querySelector("span"), nameText: figure.querySelector("i"), container: figure.querySelector("div"),
    near: false, drawn: false, curves: null, shown: [], svg: null, active: null,
  };
  figure.addEventListener("pointermove", (event) => highlight(nearest(plot, event)));
  figure.addEventListener("pointerleave", () => highlight(-1));
  return plot;
}

// Redraw charts near the viewport; others when they come near.
function redraw() {
  charts.forEach((plot) => { plot.drawn = false; if (plot.near) draw(plot); });
}

// Highlight a run in every chart and in the table; -1 for none.
function highlight(run) {
  if (run === view.active) return;
  for (const [old, on] of [[view.active, false], [run, true]]) {
    document.querySelector(`tr[data-run="${old}"]`)?.classList.toggle("active", on);
  }
  view.active = run;
  charts.forEach((plot) => { if (plot.drawn) highlightPlot(plot); });
}

function highlightPlot(plot) {
  const curve = plot.shown.find((each) => each.runs.includes(view.active));
  const on = curve !== undefined;
  plot.svg.classList.toggle("lit", on);
  plot.active.setAttribute("d", on ? path(plot, curve) : "");
  if (on) plot.active.setAttribute("class", `curve active ${styleOf(view.colour[curve.run])}`);
  plot.valueText.textContent = on ? `${short(curve.ys[curve.ys.length - 1])} at the end` : "";
  plot.nameText.textContent = on ? nameOf(curve) : "";
}

// Numbers of a measure: for each run its axes, then its values, as float32.
function unpack(measure) {
  const text = atob(measure.data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const all = new Float32Array(bytes.buffer), axes = data.axes.length;
  let offset = 0;
  return measure.runs.map((run, i) => {
    const size = measure.points[i];
    const part = (k) => all.subarray(offset + k * size, offset + (k + 1) * size);
    const curve = { run, runs: [run], xs: data.axes.map((_, k) => part(k)), ys: part(axes) };
    offset += (axes + 1) * size;
    return curve;
  });
}

function nameOf(curve) {
  const name = data.names[curve.run];
  return curve.runs.length > 1 ? `mean of ${curve.runs.length} seeds: ${name}, …` : name;
}

// One curve for each group of runs that differ in the seed only: the mean of the runs at the
// positions of the first one, over the steps that all of them have.
function means(curves) {
  const groups = Map.groupBy(curves, (curve) => data.groups[curve.run]);
  return [...groups.values()].map((group) => group.length > 1 ? mean(group) : group[0]);
}

function mean(group) {
  const [first] = group, last = Math.min(...group.map((each) => each.xs[0].at(-1)));
  const begin = Math.max(...group.map((each) => each.xs[0][0]));
  const kept = [...first.xs[0].keys()].filter((i) => begin <= first.xs[0][i] && first.xs[0][i] <= last);
  const average = (of) => Float32Array.from(kept, (i) => group.reduce(
    (sum, each) => sum + interpolated(each.xs[0], of(each), first.xs[0][i]), 0) / group.length);
  return {
    run: first.run, runs: group.map((each) => each.run),
    xs: first.xs.map((_, k) => average((each) => each.xs[k])), ys: average((each) => each.ys),
  };
}

// The value of a curve at a step, by linear interpolation.
function interpolated(steps, values, at) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= at) low = middle; else high = middle;
  }
  if (steps[high] === at || low === high) return values[high];
  const share = (at - steps[low]) / (steps[high] - steps[low]);
  return share ? values[low] + share * (values[high] - values[low]) : values[low];
}

function draw(plot) {
  if (plot.drawn) return;
  plot.curves ??= unpack(plot.measure);
  const visible = plot.curves.filter((curve) => view.shown[curve.run]);
  const shown = plot.shown = view.mean ? means(visible) : visible;
  const x = extent(shown, (curve) => curve.xs[view.axis], false);
  const y = extent(shown, (curve) => curve.ys, view.log);
  plot.x = scale(x, LEFT, WIDTH - RIGHT, false);
  plot.y = scale(y, HEIGHT - BOTTOM, TOP, view.log);
  plot.svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  plot.svg.setAttribute("aria-label", description(plot, shown));
  if (shown.length > MANY) plot.svg.classList.add("many");
  axes(plot);
  const paths = Array.from({ length: STYLES }, () => []);
  shown.forEach((curve) => paths[view.colour[curve.run]].push(path(plot, curve)));
  paths.forEach((parts, k) => {
    if (parts.length) plot.svg.append(make("path", { class: `curve ${styleOf(k)}`, d: parts.join("") }));
  });
  plot.svg.append(plot.active = make("path", { class: "curve active", d: "" }));
  plot.container.replaceChildren(plot.svg);
  plot.drawn = true;
  highlightPlot(plot);
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
    const every = Math.max(1, Math.ceil((last - first) / 5)), marks = [];
    for (let k = first; k <= last; k += every) marks.push([10 ** k, short(10 ** k)]);
    return marks;
  }
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((k) => k * power >= rough) * power;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), marks = [];
  const plain = Math.max(Math.abs(low), Math.abs(high)) < 1e4 && digits <= 4;
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-9) && marks.length < 9; k++) {
    marks.push([k * step, plain ? (k * step).toFixed(digits) : short(k * step)]);
  }
  return marks;
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e4 && size < 1e15) {
    return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 4 });
  }
  return size && (size < 1e-3 || size >= 1e15)
    ? value.toExponential(2).replace(/\.?0*e\+?/, "e") : String(+value.toPrecision(4));
}

function axes(plot) {
  for (const [value, text] of plot.y.ticks) {
    const y = plot.y.place(value);
    plot.svg.append(make("path", { class: "grid", d: `M${LEFT} ${y}H${WIDTH - RIGHT}` }));
    plot.svg.append(label(text, LEFT - 6, y + 4, "end"));
  }
  for (const [value, text] of plot.x.ticks) {
    const x = plot.x.place(value), far = x > WIDTH - 24;
    plot.svg.append(label(text, far ? WIDTH - 2 : x, HEIGHT - BOTTOM + 14, far ? "end" : "middle"));
  }
  plot.svg.append(label(data.axes[view.axis], (LEFT + WIDTH) / 2, HEIGHT - 4, "middle"));
}

function label(text, x, y, anchor) {
  const node = make("text", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
}

function path(plot, curve) {
  const xs = curve.xs[view.axis], ys = curve.ys;
  let text = "", pen = "M";
  for (let i = 0; i < ys.length; i++) {
    if (Number.isNaN(xs[i]) || (view.log && ys[i] <= 0)) { pen = "M"; continue; }
    text += `${pen}${plot.x.place(xs[i]).toFixed(1)} ${plot.y.place(ys[i]).toFixed(1)}`;
    pen = "L";
  }
  // A path of a single point is not drawn: add a short line.
  return ys.length === 1 && text ? `${text}m-2 0h4` : text;
}

function description(plot, shown) {
  const title = `${plot.measure.name} against ${data.axes[view.axis]}, ${shown.length} curves`;
  const ends = shown.map((curve) => [curve.ys[curve.ys.length - 1], nameOf(curve)]);
  if (!ends.length) return title;
  ends.sort((a, b) => a[0] - b[0]);
  const [low, high] = [ends[0], ends[ends.length - 1]];
  return `${title}; at the end from ${short(low[0])} (${low[1]}) to ${short(high[0])} (${high[1]})`;
}

// The run whose point is nearest to the pointer, if one is near.
function nearest(plot, event) {
  if (!plot.drawn) return -1;
  const box = plot.svg.getBoundingClientRect(), zoom = WIDTH / box.width;
  const px = (event.clientX - box.left) * zoom, py = (event.clientY - box.top) * zoom;
  let smallest = 30 ** 2, nearestRun = -1; // squared distance in units of the view box
  for (const curve of plot.shown) {
    const xs = curve.xs[view.axis];
    for (let i = 0; i < xs.length; i++) {
      const distance = (plot.x.place(xs[i]) - px) ** 2 + (plot.y.place(curve.ys[i]) - py) ** 2;
      if (distance < smallest) [smallest, nearestRun] = [distance, curve.run];
    }
  }
  return nearestRun;
}

function make(name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  return node;
}
