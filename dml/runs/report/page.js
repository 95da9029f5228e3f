// Theme, table, columns, colours and figures of report.html; runs after charts.js.

const $ = (id) => document.getElementById(id);
const table = $("table"), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
const rows = [...body.rows];
const title = (at) => heads[at].textContent;
const run = (row) => Number(row.dataset.run);
document.querySelectorAll(".tools, #theme").forEach((each) => { each.hidden = false; });

// Theme: that of the system, until the button is pressed.
const dark = () => (document.documentElement.dataset.theme
  ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const labelTheme = () => { $("theme").textContent = dark() ? "Light" : "Dark"; };
$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  labelTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", labelTheme);
labelTheme();

// Sorting: numbers, then words; missing values last in both directions.
function key(row, at) {
  const cell = row.cells[at], text = cell.dataset.v ?? cell.textContent;
  const value = text.trim() === "" ? NaN : Number(text);
  if (!Number.isNaN(value)) return [0, value];
  return heads[at].classList.contains("n") || !text ? [2, 0] : [1, text];
}
const words = new Intl.Collator("en", { numeric: true });
function sort(at) {
  const down = heads[at].getAttribute("aria-sort") === "ascending";
  const sign = down ? -1 : 1, keys = new Map(rows.map((row) => [row, key(row, at)]));
  rows.sort((a, b) => {
    const [kind, left] = keys.get(a), [other, right] = keys.get(b);
    if (kind !== other) return kind === 2 || other === 2 ? kind - other : sign * (kind - other);
    if (kind === 2) return run(a) - run(b);
    return sign * (kind ? words.compare(left, right) : left - right) || run(a) - run(b);
  });
  heads.forEach((head, i) => head.setAttribute(
    "aria-sort", i !== at ? "none" : down ? "descending" : "ascending"));
  body.append(...rows);
}
heads.forEach((head, at) => head.firstChild.addEventListener("click", () => sort(at)));

// Filter: show rows with every word, in a cell or as name=value.
const texts = new Map();
function searchText(row) {
  if (!texts.has(row)) {
    const cells = [...row.cells].map((cell, at) => `${title(at)}=${cell.textContent}`);
    texts.set(row, ` ${cells.join(" ")} `.toLowerCase());
  }
  return texts.get(row);
}
function filter() {
  const searchWords = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    // A word with = must match completely: --n=1 does not match --n=16.
    const fits = searchWords.every((word) => searchText(row).includes(word.includes("=") ? `${word} ` : word));
    row.hidden = !fits;
    view.shown[run(row)] = fits;
    count += fits;
  }
  showCount(count);
  redraw();
}
function showCount(count) {
  $("count").textContent = `${count} of ${rows.length} runs`;
  $("all").hidden = count <= 200 || table.classList.contains("all");
}
$("all").addEventListener("click", () => {
  table.classList.add("all");
  $("all").hidden = true;
  table.parentElement.focus();
});
let timer = 0;
$("filter").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(filter, rows.length > 200 ? 150 : 0);
});
showCount(rows.length);

// Columns: checkboxes for visible columns.
function column(at, on) {
  for (const row of [table.tHead.rows[0], ...rows]) row.cells[at].classList.toggle("off", !on);
}
$("columns").addEventListener("toggle", () => {
  const box = $("columns").lastElementChild;
  if (box.firstChild) return;
  heads.forEach((head, at) => {
    if (!at) return;
    const label = document.createElement("label"), tick = document.createElement("input");
    tick.type = "checkbox";
    tick.checked = !head.classList.contains("off");
    tick.addEventListener("change", () => column(at, tick.checked));
    label.append(tick, title(at));
    box.append(label);
  });
});

// Colours: one per run, or one per value of a column.
function colour(at) {
  const values = rows.map((row) => row.cells[at].textContent);
  const every = [...new Set(values)].sort(words.compare);
  rows.forEach((row, i) => {
    view.colour[run(row)] = (at ? every.indexOf(values[i]) : data.groups[run(row)]) % STYLES;
  });
  const setColour = (node, k) => { node.className = `swatch ${styleOf(k)}`; return node; };
  rows.forEach((row) => {
    const k = view.colour[run(row)];
    setColour(row.querySelector("i"), k);
    setColour($(`run-${run(row)}`).querySelector("i"), k);
  });
  $("legend").replaceChildren(...(at ? every : []).slice(0, 40).map((value, k) => {
    const item = document.createElement("li");
    item.append(setColour(document.createElement("i"), k % STYLES), value || "–");
    return item;
  }));
  redraw();
}
function options(select, names, chosen) {
  names.forEach(([value, text]) => select.append(new Option(text, value)));
  select.addEventListener("change", () => chosen(Number(select.value)));
}
options($("axis"), [...data.axes.entries()], (at) => { view.axis = at; redraw(); });
options($("colour"), heads.flatMap((head, at) =>
  at < 2 || head.classList.contains("flag") ? [[at, title(at)]] : []), colour);
$("scale").addEventListener("change", (event) => {
  view.log = event.target.value === "log";
  redraw();
});

// One curve for each group of runs that differ in the seed only.
const repeated = new Set(data.groups).size < data.groups.length;
$("mean").parentElement.hidden = !repeated;
$("mean").addEventListener("change", (event) => { view.mean = event.target.checked; redraw(); });
if (repeated) colour(0);

// Highlight the run under the pointer or the focus in every chart.
const runUnder = (event) => Number(event.target.closest("tbody tr")?.dataset.run ?? -1);
for (const kind of ["pointerover", "focusin"]) {
  table.addEventListener(kind, (event) => highlight(runUnder(event)));
}
for (const kind of ["pointerleave", "focusout"]) table.addEventListener(kind, () => highlight(-1));

// Figures: decompressed when the run is opened.
async function figure(image) {
  const packed = Uint8Array.from(atob(image.dataset.svg), (each) => each.charCodeAt(0));
  image.removeAttribute("data-svg");
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) {
    text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  }
  image.src = `data:image/svg+xml;base64,${btoa(text)}`;
}
$("each").addEventListener("toggle", (event) => {
  if (event.target.open) event.target.querySelectorAll("img[data-svg]").forEach(figure);
}, true); // toggle events do not bubble

function openTarget() {
  const target = /^#run-\d+$/.test(location.hash) && document.querySelector(location.hash);
  if (!target) return;
  target.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", openTarget);
document.addEventListener("click", (event) => {
  if (event.target.closest('a[href^="#run-"]')?.hash === location.hash) openTarget();
});
openTarget();
