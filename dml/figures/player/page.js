"use strict";
// Times are fractions of the run. A frame draws the state at `now`; only what changed is set.
const film = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const LENGTH = 12; // seconds of a film at speed 1
const PHASES = { gradient: "#4aa06e", compute: "#4aa06e", update: "#8f6fb8", wire: "#6f9bd1", ...film.colours };
const WAITS = "#d9773f", IDLE = "#8a939b";
const stage = byId("stage"), centre = 400;
// discs on a circle, strips of chunks outside of it, phases of each rank by time below
const width = film.states.length ? Math.max(26, Math.min(110, 1500 / film.ranks)) : 0;
const size = Math.max(7, Math.min(26, 800 / film.ranks));
const radius = film.ranks > 1 ? centre - size - width - 16 : 0;
const lane = film.phases.length ? Math.max(3, Math.min(16, 320 / film.ranks)) : 0;
const left = 40, span = 800 - left, bottom = 816 + lane * film.ranks;
const most = Math.max(1, ...film.levels.map(([value]) => value));
let now = 0, playing = false, before = 0;

function node(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

// of a chunk: from the palette, or from pale blue for 1 to deep green for the last level
function colour(count) {
  if (film.palette.length) return film.palette[Math.min(count, film.palette.length - 1)];
  if (!count) return "#b9c0c7";
  const share = most > 1 ? Math.min(1, (count - 1) / (most - 1)) : 1;
  return `hsl(${Math.round(215 - 75 * share)} ${Math.round(55 + 15 * share)}% ${Math.round(72 - 38 * share)}%)`;
}

const outer = Array.from({ length: film.ranks }, (_, rank) => rank).filter((rank) => rank !== film.centre);
const angles = [];
outer.forEach((rank, k) => { angles[rank] = (2 * Math.PI * k) / outer.length - Math.PI / 2; });
const place = Array.from({ length: film.ranks }, (_, rank) =>
  rank === film.centre ? [centre, centre] : [centre + radius * Math.cos(angles[rank]), centre + radius * Math.sin(angles[rank])]);
const lines = node("g", { stroke: IDLE }, stage);
const links = new Map();
const pair = (s, d) => Math.min(s, d) * film.ranks + Math.max(s, d);
for (const [s, d] of film.messages) {
  if (links.has(pair(s, d))) continue;
  const [[x1, y1], [x2, y2]] = [place[s], place[d]];
  links.set(pair(s, d), { line: node("line", { x1, y1, x2, y2, "stroke-opacity": 0.35 }, lines), load: 0, shown: 0 });
}
const ranks = place.map(([x, y], rank) => {
  const group = node("g", { transform: `translate(${x} ${y})` }, stage);
  const disc = node("circle", { r: size, fill: IDLE }, group);
  const font = Math.max(9, (size * 1.8) / Math.max(2, film.names[rank].length));
  const label = node("text", { "text-anchor": "middle", dy: "0.35em", "font-size": font, fill: "#fff", "font-family": "system-ui, sans-serif" }, group);
  label.textContent = film.names[rank];
  return { group, disc, cells: [], shown: [], phases: film.phases.filter((entry) => entry[0] === rank) };
});
for (const [rank, , counts] of film.states) {
  const entry = ranks[rank];
  if (entry.cells.length) continue;
  const middle = rank === film.centre, columns = middle && counts.length > 16 ? Math.ceil(Math.sqrt(2 * counts.length)) : counts.length;
  const each = middle ? Math.min(20, (1.1 * radius) / columns) : width / columns, high = middle ? each : 12;
  const x = middle ? (-columns * each) / 2 : (size + 8 + width / 2) * Math.cos(angles[rank]) - width / 2;
  const y = middle ? size + 8 : (size + 16) * Math.sin(angles[rank]) - 6;
  entry.cells = counts.map((_, k) =>
    node("rect", { x: x + (k % columns) * each, y: y + Math.floor(k / columns) * high, width: each + 0.2, height: high + 0.2, fill: colour(0) }, entry.group));
}
const moving = node("g", {}, stage);
const dots = [];
const largest = Math.max(1, ...film.messages.map((message) => message[4]));

const fill_of = (name) => (!name ? IDLE : PHASES[name] || WAITS);
stage.setAttribute("viewBox", `0 0 800 ${lane ? bottom : 800}`);
const runs = []; // consecutive phases of a colour are one path, which is drawn faster
for (const [rank, name, start, end] of film.phases) {
  const fill = fill_of(name), wide = Math.max(0.4, (end - start) * span).toFixed(2);
  if (!runs.length || runs.at(-1).fill !== fill) runs.push({ fill, d: "" });
  runs.at(-1).d += `M${(left + start * span).toFixed(2)} ${812 + rank * lane}h${wide}v${lane * 0.85}h-${wide}z`;
}
for (const run of runs) node("path", run, stage);
for (let rank = 0; lane > 7 && rank < film.ranks; rank += 1) {
  const label = node("text", { x: left - 6, y: 812 + (rank + 0.8) * lane, "text-anchor": "end", "font-size": lane * 0.9, fill: "currentColor", "font-family": "system-ui, sans-serif" }, stage);
  label.textContent = film.names[rank];
}
const cursor = lane ? node("line", { y1: 808, y2: bottom, stroke: "currentColor", "stroke-width": 1.5 }, stage) : null;

const events = [...new Set(film.messages.flatMap(([, , sent, received]) => [sent, received]))].sort((a, b) => a - b);

function phase(entry, time) {
  // the innermost phase that contains the time
  let found = "";
  for (const [, name, start, end] of entry.phases) {
    if (start > time) break;
    if (time < end) found = name;
  }
  return found;
}

function latest(time) {
  const states = new Array(film.ranks);
  for (const [rank, from, counts] of film.states) {
    if (from > time + 1e-9) break;
    states[rank] = counts;
  }
  return states;
}

function draw() {
  const states = latest(now);
  ranks.forEach((entry, rank) => {
    const fill = fill_of(phase(entry, now));
    if (entry.fill !== fill) entry.disc.setAttribute("fill", (entry.fill = fill));
    (states[rank] || []).forEach((count, k) => {
      if (entry.cells[k] && entry.shown[k] !== count) entry.cells[k].setAttribute("fill", colour((entry.shown[k] = count)));
    });
  });
  let used = 0, done = 0, bytes = 0;
  for (const [source, dest, sent, received, nbytes, content] of film.messages) {
    if (sent > now) break;
    bytes += nbytes;
    if (received <= now) { done += 1; continue; }
    const dot = dots[used] || (dots[used] = node("circle", { stroke: "#fff", "stroke-width": 1 }, moving));
    links.get(pair(source, dest)).load += nbytes;
    const part = (now - sent) / Math.max(received - sent, 1e-9);
    const [[x1, y1], [x2, y2]] = [place[source], place[dest]];
    dot.setAttribute("cx", x1 + (x2 - x1) * part);
    dot.setAttribute("cy", y1 + (y2 - y1) * part);
    dot.setAttribute("r", 4 + 7 * Math.sqrt(nbytes / largest));
    dot.setAttribute("fill", content ? colour(content) : "#0072b2");
    dot.removeAttribute("display");
    used += 1;
  }
  dots.slice(used).forEach((dot) => dot.setAttribute("display", "none"));
  for (const link of links.values()) {  // bytes in transit
    if (link.load !== link.shown) {
      link.line.setAttribute("stroke-width", 1 + 6 * Math.sqrt(Math.min(1, link.load / largest / 2)));
      link.shown = link.load;
    }
    link.load = 0;
  }
  if (cursor) for (const end of ["x1", "x2"]) cursor.setAttribute(end, left + now * span);
  byId("clock").value = Math.round(now * 10000);
  byId("now").textContent = `${seconds(now * film.seconds)} of ${seconds(film.seconds)}: ${done.toLocaleString("en")} messages received, ${used} in transit, ${size_of(bytes)} sent`;
}

function seconds(value) {
  const [unit, scale] = film.seconds < 1e-3 ? ["µs", 1e6] : film.seconds < 1 ? ["ms", 1e3] : ["s", 1];
  return `${(value * scale).toPrecision(3)} ${unit}`;
}

function size_of(bytes) {
  for (const [unit, scale] of [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) if (bytes >= scale) return `${(bytes / scale).toPrecision(3)} ${unit}`;
  return `${bytes} B`;
}

function go(time) {
  now = Math.min(1, Math.max(0, time));
  draw();
}

function mark() {
  history.replaceState(null, "", `#t=${now.toFixed(4)}`);
}

function play(on) {
  playing = on;
  if (on && now >= 1) now = 0;
  byId("play").textContent = on ? "Pause" : "Play";
  byId("now").setAttribute("aria-live", on ? "off" : "polite");
  before = performance.now();
  if (on) requestAnimationFrame(frame);
  else mark();
}

function frame(time) {
  if (!playing) return;
  window.frames_drawn = (window.frames_drawn || 0) + 1;
  go(now + (Math.max(time - before, 0) / 1000 / LENGTH) * Number(byId("speed").value));
  before = time;
  if (now >= 1) play(false);
  else requestAnimationFrame(frame);
}

function step(direction) {
  play(false);
  const next = direction > 0 ? events.find((time) => time > now + 1e-7) : events.findLast((time) => time < now - 1e-7);
  go(next === undefined ? (direction > 0 ? 1 : 0) : next);
  mark();
}

byId("play").addEventListener("click", () => play(!playing));
byId("next").addEventListener("click", () => step(1));
byId("back").addEventListener("click", () => step(-1));
byId("clock").addEventListener("input", (event) => { play(false); go(event.target.value / 10000); mark(); });
byId("save").addEventListener("click", () => {
  const text = new XMLSerializer().serializeToString(stage);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  link.download = `frame-${now.toFixed(4)}.svg`;
  link.click();
  URL.revokeObjectURL(link.href);
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select")) return;
  const action = { ArrowRight: () => step(1), ArrowLeft: () => step(-1), Home: () => { play(false); go(0); mark(); }, End: () => { play(false); go(1); mark(); } }[event.key];
  if (event.key === " " && !event.target.matches("button")) { event.preventDefault(); play(!playing); }
  if (action) { event.preventDefault(); action(); }
});
window.addEventListener("hashchange", () => {
  const found = /t=([\d.]+)/.exec(location.hash);
  if (found && Math.abs(Number(found[1]) - now) > 1e-4) { play(false); go(Number(found[1])); }
});

const legend = (text, fill) => {
  const entry = document.createElement("span"), box = document.createElement("i");
  box.style.background = fill;
  entry.append(box, text);
  byId("legend").append(entry);
};
for (const [value, text] of film.levels) legend(text, colour(value));
const names = new Set(film.phases.map((entry) => entry[1]));
for (const [name, fill] of Object.entries(PHASES)) if (names.has(name)) legend(name, fill);
if ([...names].some((name) => !PHASES[name])) legend("in a call of MPI", WAITS);
legend("idle", IDLE);
if (film.dropped) legend(`${film.dropped} later messages are left out`, "transparent");
const start = /t=([\d.]+)/.exec(location.hash);
go(start ? Number(start[1]) : 0);
