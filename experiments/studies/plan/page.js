"use strict";
// The sliders select one of the exported tables; sums and prices are computed here.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const sum = (parts) => Object.values(parts).reduce((total, value) => total + value, 0);
const digits = (value, n = 3) => Number(value.toPrecision(n)).toLocaleString("en");
let selected = 0;

function table() {
  const [devices, network] = [Number(byId("devices").value), Number(byId("network").value)];
  const rows = data.tables[devices][network];
  const [micro, remat] = [byId("micro").value, byId("remat").value];
  return rows
    .filter((row) => micro === "any" || String(row.micro) === micro)
    .filter((row) => remat === "any" || row.remat === remat)
    .map((row) => ({ ...row, seconds: sum(row.parts), gib: sum(row.memory) }))
    .sort((a, b) => a.seconds - b.seconds);
}

function bars(target, parts, unit, limit) {
  const entries = Object.entries(parts).filter(([, value]) => value > 0);
  entries.push(["total", sum(parts)]);
  if (limit) entries.push(["limit", limit]);
  const most = Math.max(...entries.map(([, value]) => value));
  target.replaceChildren(...entries.map(([name, value]) => {
    const row = document.createElement("div");
    if (limit && name === "total" && value > limit) row.className = "over";
    if (name === "limit") row.className = "limit";
    const [label, bar, text] = ["span", "span", "span"].map((tag) => document.createElement(tag));
    label.textContent = name;
    const fill = document.createElement("i");
    fill.style.width = `${(100 * value) / most}%`;
    bar.append(fill);
    text.textContent = `${digits(value)} ${unit}`;
    row.append(label, bar, text);
    return row;
  }));
}

function show() {
  const devices = data.devices[byId("devices").value];
  const network = data.networks[byId("network").value];
  byId("devices-value").textContent = `${devices.toLocaleString("en")} ${data.device}`;
  byId("network-value").textContent = `${digits(network)} Gb/s`;
  const rows = table();
  selected = Math.min(selected, Math.max(rows.length - 1, 0));
  byId("meshes").replaceChildren(...rows.slice(0, 20).map((row, index) => {
    const line = document.createElement("tr");
    if (index === selected) line.setAttribute("aria-current", "true");
    const pick = document.createElement("button");
    pick.type = "button";
    pick.textContent = row.mesh;
    pick.addEventListener("click", () => { selected = index; show(); });
    const cells = [pick, row.options, digits(row.seconds, 4), digits(row.gib)];
    line.append(...cells.map((cell) => {
      const td = document.createElement("td");
      td.append(cell);
      return td;
    }));
    return line;
  }));
  const row = rows[selected];
  if (!row) {
    byId("answer").textContent = "No mesh fits in memory: choose more devices, a smaller micro batch or recomputation.";
    byId("parts").replaceChildren();
    byId("memory").replaceChildren();
    return;
  }
  const step = row.seconds, rate = (data.batch * data.sequence) / step;
  const days = data.tokens / rate / 86400;
  byId("answer").textContent =
    `${row.mesh}: ${digits(step)} s per step, ${digits(rate)} tokens/s; ` +
    `${digits(data.tokens / 1e9)} billion tokens take ${digits(days)} days and cost ` +
    `${digits(days * 24 * devices * data.dollars)} dollars without failures.`;
  bars(byId("parts"), row.parts, "s");
  bars(byId("memory"), row.memory, "GiB", data.limit);
}

function options(id, values) {
  byId(id).replaceChildren(...["any", ...values].map((value) => new Option(value, value)));
}

byId("size").textContent =
  `${data.batch.toLocaleString("en")} examples of ${data.sequence.toLocaleString("en")} tokens, ` +
  `${data.precision}; python experiments/plan.py`;
byId("devices").max = data.devices.length - 1;
byId("network").max = data.networks.length - 1;
byId("devices").value = Math.floor(data.devices.length / 2);
byId("network").value = Math.floor(data.networks.length / 2);
options("micro", [...new Set(data.tables.flat(2).map((row) => row.micro))].sort((a, b) => a - b));
options("remat", ["none", "selective", "full"]);
for (const id of ["devices", "network", "micro", "remat"]) {
  byId(id).addEventListener("input", () => { selected = 0; show(); });
}
show();
