"use strict";
// Times are fractions of the run. A frame draws the state at `now`; only what changed is set.
const film = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const LENGTH = 12; // seconds of a film at speed 1
const PHASES = { gradient: "#4aa06e", compute: "#4aa06e", update: "#8f6fb8", wire: "#6f9bd1", ...film.colours };
const WAITS = "#d9773f", IDLE = "#8a939b", ROUTER = "#5f6872";
const SHADES = 16; // of chunks, besides the first
const LOADS = [{ stroke: IDLE, width: 1.5 }, { stroke: "#3987d6", width: 4 }, { stroke: "#d1457b", width: 7 }]; // 0, 1, 2 or more messages
const stage = byId("stage"), centre = 400;
const network = film.network, room = network ? network.room * centre : 0; // between ranks of a grid
// discs on a circle, strips of chunks outside of it, phases of each rank by time below
const size = Math.max(7, Math.min(26, 800 / film.ranks));
const width = film.states.length ? Math.max(26, Math.min(110, 1500 / film.ranks, room ? room / 2 - size : 110)) : 0;
const radius = room ? centre - 4 : film.ranks > 1 ? centre - size - width - 16 : 0;
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
  const shades = Math.min(SHADES, most - 1), share = shades ? Math.min(1, Math.round((shades * (count - 1)) / (most - 1)) / shades) : 1;
  return `hsl(${Math.round(215 - 75 * share)} ${Math.round(55 + 15 * share)}% ${Math.round(72 - 38 * share)}%)`;
}

const outer = Array.from({ length: film.ranks }, (_, rank) => rank).filter((rank) => rank !== film.centre);
const angles = [];
outer.forEach((rank, k) => { angles[rank] = (2 * Math.PI * k) / outer.length - Math.PI / 2; });
const on_circle = Array.from({ length: film.ranks }, (_, rank) => (rank === film.centre ? [0, 0] : [Math.cos(angles[rank]), Math.sin(angles[rank])]));
// of ranks, then of routers
const place = (network ? network.places : on_circle).map(([x, y]) => [centre + radius * x, centre + radius * y]);

// The segments of a link, to the right of the line between its ends: a cable is two links.
function segments(tail, head, dx, dy) {
  const [[x1, y1], [x2, y2]] = [place[tail], place[head]];
  const [x, y] = dx === undefined ? [x2 - x1, y2 - y1] : [dx * radius, dy * radius];
  const long = Math.hypot(x, y) || 1, right = (-4 * y) / long, down = (4 * x) / long;
  const from = [x1 + right, y1 + down], to = [x2 + right, y2 + down];
  if (dx === undefined) return [[...from, ...to]];
  return [[...from, from[0] + x, from[1] + y], [to[0] - x, to[1] - y, ...to]];
}

const lines = node("g", { stroke: IDLE, fill: "none" }, stage);
// of the network, or one for each pair of ranks that exchange messages
const links = (network ? network.links : []).map((link, k) => {
  const d = segments(...link).map(([x1, y1, x2, y2]) => `M${x1.toFixed(1)} ${y1.toFixed(1)}L${x2.toFixed(1)} ${y2.toFixed(1)}`).join("");
  const path = node("path", { d, "stroke-width": LOADS[0].width }, lines);
  node("title", {}, path).textContent = `${link_name(k)}, utilization ${percent(network.used[k])}`;
  return { node: path, load: 0, shown: 0 };
});
const routes = new Map(); // of ordered pairs of ranks: links, and segments along which messages move
const pair = (s, d) => s * film.ranks + d;
film.messages.forEach(([s, d], message) => {
  if (routes.has(pair(s, d))) return;
  if (network) {
    const route = network.routes[message], track = route.flatMap((link) => segments(...network.links[link])), [from, to] = [network.at[s], network.at[d]];
    if (from !== s) track.unshift([...place[s], ...place[from]]);
    if (to !== d) track.push([...place[to], ...place[d]]);
    routes.set(pair(s, d), { route, track });
  } else {
    const [[x1, y1], [x2, y2]] = [place[s], place[d]], back = routes.get(pair(d, s));
    if (!back) links.push({ node: node("line", { x1, y1, x2, y2, "stroke-opacity": 0.35 }, lines), load: 0, shown: 0 });
    routes.set(pair(s, d), { route: back ? back.route : [links.length - 1], track: [[x1, y1, x2, y2]] });
  }
});
if (network) network.at.forEach((at, rank) => {
  if (at !== rank) node("line", { x1: place[rank][0], y1: place[rank][1], x2: place[at][0], y2: place[at][1], "stroke-dasharray": "2 4" }, lines);
});
place.slice(film.ranks).forEach(([x, y], k) => {
  const router = node("rect", { x: x - 8, y: y - 8, width: 16, height: 16, rx: 3, fill: ROUTER, stroke: "none" }, lines);
  node("title", {}, router).textContent = network.names[film.ranks + k];
});

function link_name(k) {
  const [tail, head] = network.links[k];
  return `${network.names[tail]} → ${network.names[head]}`;
}

function percent(share) {
  return `${(100 * share).toFixed(0)} %`;
}

const ranks = place.slice(0, film.ranks).map(([x, y], rank) => {
  const group = node("g", { transform: `translate(${x} ${y})` }, stage);
  const disc = node("circle", { r: size, fill: IDLE }, group);
  const font = Math.max(9, (size * 1.8) / Math.max(2, film.names[rank].length));
  const label = node("text", { "text-anchor": "middle", dy: "0.35em", "font-size": font, fill: "#fff", "font-family": "system-ui, sans-serif" }, group);
  label.textContent = film.names[rank];
  return { group, disc, phases: film.phases.filter((entry) => entry[0] === rank) };
});
for (const [rank, , counts] of film.states) {
  const entry = ranks[rank];
  if (entry.strip) continue;
  const middle = rank === film.centre, columns = middle && counts.length > 16 ? Math.ceil(Math.sqrt(2 * counts.length)) : counts.length;
  const each = middle ? Math.min(20, (1.1 * radius) / columns) : width / columns, high = middle ? each : 12;
  const x = room ? 0.8 * size : middle ? (-columns * each) / 2 : (size + 8 + width / 2) * Math.cos(angles[rank]) - width / 2;
  const y = room ? 0.8 * size : middle ? size + 8 : (size + 16) * Math.sin(angles[rank]) - 6;
  entry.strip = { x, y, columns, each, high, paths: [] };
  fill_strip(entry, new Array(counts.length).fill(0));
}

// A strip has one path for each colour, and in it one rectangle for adjacent chunks.
function fill_strip(entry, counts) {
  const { x, y, columns, each, high, paths } = entry.strip, shapes = new Map(), fills = counts.map(colour);
  for (let k = 0, next; k < fills.length; k = next) {
    for (next = k + 1; next % columns && fills[next] === fills[k];) next += 1;
    const wide = ((next - k) * each + 0.2).toFixed(2), top = y + Math.floor(k / columns) * high;
    shapes.set(fills[k], `${shapes.get(fills[k]) || ""}M${(x + (k % columns) * each).toFixed(2)} ${top.toFixed(2)}h${wide}v${(high + 0.2).toFixed(2)}h-${wide}z`);
  }
  const drawn = [...shapes];
  while (paths.length < drawn.length) paths.push(node("path", {}, entry.group));
  while (paths.length > drawn.length) paths.pop().remove();
  drawn.forEach(([fill, d], k) => { paths[k].setAttribute("fill", fill); paths[k].setAttribute("d", d); });
  entry.shown = counts;
}

const moving = node("g", {}, stage);
const dots = [];
const largest = Math.max(1, ...film.messages.map((message) => message[4]));

const fill_of = (name) => (!name ? IDLE : PHASES[name] || WAITS);
stage.setAttribute("viewBox", `0 0 800 ${lane ? bottom : 800}`);
// Consecutive phases of a colour are one path, which is drawn faster. A part of the time has paths of its own: a
// frame draws only those that the cursor crosses.
const runs = Array.from({ length: 64 }, () => []);
for (const [rank, name, start, end] of film.phases) {
  const fill = fill_of(name), wide = Math.max(0.4, (end - start) * span).toFixed(2);
  const part = runs[Math.min(Math.floor(start * runs.length), runs.length - 1)];
  if (!part.length || part.at(-1).fill !== fill) part.push({ fill, d: "" });
  part.at(-1).d += `M${(left + start * span).toFixed(2)} ${812 + rank * lane}h${wide}v${lane * 0.85}h-${wide}z`;
}
for (const run of runs.flat()) node("path", run, stage);
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
    if (states[rank] && states[rank] !== entry.shown) fill_strip(entry, states[rank]);
  });
  let used = 0, done = 0, bytes = 0;
  for (const message of film.messages) {
    const [source, dest, sent, received, nbytes, content] = message;
    if (sent > now) break;
    bytes += nbytes;
    if (received <= now) { done += 1; continue; }
    const { route, track } = routes.get(pair(source, dest));
    for (const link of route) links[link].load += network ? 1 : nbytes;
    const along = (track.length * (now - sent)) / Math.max(received - sent, 1e-9), k = Math.min(Math.floor(along), track.length - 1);
    const [x1, y1, x2, y2] = track[k];
    if (used === dots.length) dots.push({ node: node("circle", { stroke: "#fff", "stroke-width": 1 }, moving) });
    const dot = dots[used];
    if (dot.message !== message) {
      dot.node.setAttribute("r", 4 + 7 * Math.sqrt(nbytes / largest));
      dot.node.setAttribute("fill", content ? colour(content) : "#0072b2");
      dot.message = message;
    }
    dot.node.setAttribute("cx", x1 + (x2 - x1) * (along - k));
    dot.node.setAttribute("cy", y1 + (y2 - y1) * (along - k));
    used += 1;
  }
  while (dots.length > used) dots.pop().node.remove();
  const loaded = LOADS.map(() => 0); // links by their number of messages
  for (const link of links) {
    if (network) loaded[link.load = Math.min(link.load, 2)] += 1;
    if (link.load !== link.shown) show_load(link);
    link.load = 0;
  }
  if (cursor) for (const end of ["x1", "x2"]) cursor.setAttribute(end, left + now * span);
  byId("clock").value = Math.round(now * 10000);
  byId("now").textContent = `${seconds(now * film.seconds)} of ${seconds(film.seconds)}: ${done.toLocaleString("en")} messages received, ${used} in transit, ${size_of(bytes)} sent${network ? `. Links: ${loaded[0]} idle, ${loaded[1]} with one message, ${loaded[2]} with several` : ""}`;
}

function show_load(link) {
  link.shown = link.load;
  if (!network) link.node.setAttribute("stroke-width", 1 + 6 * Math.sqrt(Math.min(1, link.load / largest / 2))); // bytes
  for (const [name, value] of Object.entries(network ? LOADS[link.load] : {})) link.node.setAttribute(name === "width" ? "stroke-width" : name, value);
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
  return box;
};
for (const [value, text] of film.levels) legend(text, colour(value));
const names = new Set(film.phases.map((entry) => entry[1]));
for (const [name, fill] of Object.entries(PHASES)) if (names.has(name)) legend(name, fill);
if ([...names].some((name) => !PHASES[name])) legend("in a call of MPI", WAITS);
legend("idle", IDLE);
if (network) {
  ["link without messages", "with one message in transit", "with several"].forEach((text, k) => {
    legend(text, LOADS[k].stroke).style.height = `${LOADS[k].width}px`;
  });
  if (place.length > film.ranks) legend("router", ROUTER);
  const most_used = network.used.indexOf(Math.max(...network.used));
  byId("busiest").textContent = `Busiest link: ${link_name(most_used)}, which transfers bytes for ${percent(network.used[most_used])} of the time. ` +
    `${network.used.filter((share) => share).length} of ${links.length} links are used.`;
}
if (film.dropped) legend(`${film.dropped} later messages are left out`, "transparent");
const start = /t=([\d.]+)/.exec(location.hash);
go(start ? Number(start[1]) : 0);
