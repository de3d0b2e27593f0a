"use strict";
// The page's data, and what of it is shown.
const inspection = JSON.parse(document.getElementById("data").textContent);
const shown = { report: 0, graph: 0, step: 0, tab: "Source" };

const KEYWORDS = new Set(("struct void const static uniform let var int uint float float4 half double bool int64_t uint64_t " +
  "uint3 uint2 int2 if else for while do break continue return true false vector import in out inout groupshared").split(" "));
const BOX_HEIGHT = 76, ROW_GAP = 34, COLUMN_GAP = 12, NARROWEST_BOX = 150, MARGIN = 12, LANE = 5;
const MOST_BUTTONS = 6; // more graphs are chosen from a list

function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "rect", "line", "text", "title", "g"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const byId = (id) => document.getElementById(id);
const fill = (id, ...children) => byId(id).replaceChildren(...children);
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const short = (operator) => operator.replace(/^(aten|prims)\./, "");
const fileName = (path) => path.split(/[\\/]/).pop();

function scaled(value, units) {
  let index = 0;
  while (index < units.length - 1 && Math.abs(value) >= 999.5) { value /= 1000; index += 1; }
  const digits = value === 0 || value >= 100 || (index === 0 && Number.isInteger(value)) ? 0 : value >= 10 ? 1 : 2;
  return [value.toFixed(digits), units[index]];
}
const bytes = (n) => scaled(n, ["B", "kB", "MB", "GB", "TB"]);
const time = (ns) => scaled(ns, ["ns", "µs", "ms", "s"]);
const operations = (n) => scaled(n, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"]);
const joined = (pair) => pair.join(" ");
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

const report = () => inspection.reports[shown.report];
const graph = () => report().graphs[shown.graph];
const kernelOf = (step) => graph().kernels.find((kernel) => kernel.name === step.kernel);
const breakable = (name) => name.replaceAll("_", "_\u200b");
const nameOf = (step) => step.operators.map(short).join(" + ") || step.kernel;
const graphTime = (g) => sum(g.steps.map((step) => step.time_ns ?? 0));
const isMeasured = (g) => g.steps.some((step) => step.time_ns !== null);

// What decides how strongly a box is marked: measured time, else the shortest possible time, else bytes.
function weight(step) {
  return step.time_ns ?? step.bound_ns ?? step.read_bytes + step.written_bytes;
}

function choice(id, labels, chosen, choose) {
  fill(id, ...(labels.length < 2 && id === "reports" ? [] : labels.map((label, index) =>
    element("button", { role: "tab", "aria-selected": index === chosen, onclick: () => choose(index) }, label))));
}

function showHeader() {
  const { device, driver, executed, roof } = report();
  byId("device").textContent = `${device} · ${driver}${executed ? "" : " · compiled, not run"}`;
  byId("roof").textContent = roof === null ? "" :
    `Here ${scaled(roof.bytes_per_second / 1e9, ["GB/s", "TB/s"]).join(" ")} and ` +
    `${scaled(roof.flops_per_second / 1e9, ["GFLOP/s", "TFLOP/s"]).join(" ")} (${roof.source}). ` +
    "More than 100 % means that a cache held the data.";
  choice("reports", inspection.reports.map((r) => r.device.split(/[,(]/)[0].trim()), shown.report,
    (index) => Object.assign(shown, { report: index, graph: 0, step: 0 }) && show());
  const names = graphNames(report().graphs);
  const choose = (index) => Object.assign(shown, { graph: index, step: 0 }) && show();
  if (names.length <= MOST_BUTTONS) return choice("graphs", names, shown.graph, choose);
  fill("graphs", element("select", { "aria-label": "Graph", onchange: (event) => choose(event.target.selectedIndex) },
    ...report().graphs.map((g, index) => element("option", { selected: index === shown.graph }, `${names[index]} · ${summaryOf(g)}`))));
}

function graphNames(graphs) {
  const counts = {};
  return graphs.map((g) => {
    counts[g.phase] = (counts[g.phase] ?? 0) + 1;
    const many = graphs.filter((other) => other.phase === g.phase).length > 1;
    return g.phase[0].toUpperCase() + g.phase.slice(1) + (many ? ` ${counts[g.phase]}` : "");
  });
}

// What of a graph tells it from others: its heaviest kernel, how many there are, how long they take.
function summaryOf(g) {
  if (g.steps.length === 0) return "no dispatch";
  const heaviest = g.steps.reduce((a, b) => (weight(b) > weight(a) ? b : a));
  const operators = heaviest.operators.map(short), more = operators.length > 3 ? " + …" : "";
  const dispatches = g.steps.length === 1 ? "1 dispatch" : `${g.steps.length} dispatches`;
  return [(operators.slice(0, 3).join(" + ") || heaviest.kernel) + more, dispatches,
    isMeasured(g) ? joined(time(graphTime(g))) : null].filter(Boolean).join(" · ");
}

function showTiles() {
  const g = graph(), steps = g.steps;
  const tile = (label, [value, unit]) => element("div", { class: "tile" },
    element("b", {}, value, element("i", {}, unit)), element("span", { class: "muted small" }, label));
  const moved = sum(steps.map((step) => step.read_bytes + step.written_bytes));
  const bound = sum(steps.map((step) => step.bound_ns ?? 0));
  fill("tiles",
    isMeasured(g) ? tile("device time", time(graphTime(g))) : tile("shortest possible time", time(bound)),
    tile("dispatches", [String(steps.length), ""]),
    tile("barriers", [String(steps.filter((step) => step.barrier).length), ""]),
    tile("read and written", bytes(moved)),
    tile("operations", operations(sum(steps.map((step) => step.flops)))),
    tile("arena", bytes(g.arena_bytes)));
}

// The graph: rows by the longest way from the graph's inputs, as many boxes side by side as fit.

function producers(steps) {
  const writer = new Map();
  return steps.map((step, index) => {
    const found = new Set(step.reads.filter((name) => writer.has(name)).map((name) => writer.get(name)));
    step.writes.forEach((name) => writer.set(name, index));
    return [...found].filter((other) => other !== index);
  });
}

function rowsOf(steps, sources, columns) {
  const depth = [], layers = [];
  steps.forEach((_, index) => {
    depth[index] = 1 + Math.max(-1, ...sources[index].map((other) => depth[other]));
    (layers[depth[index]] ??= []).push(index);
  });
  const place = new Map(), rows = [];
  for (const layer of layers) {
    const center = (index) => sources[index].length ? sum(sources[index].map((o) => place.get(o))) / sources[index].length : 0.5;
    const ordered = [...layer].sort((a, b) => center(a) - center(b) || a - b);
    for (let at = 0; at < ordered.length; at += columns) {
      const row = ordered.slice(at, at + columns);
      row.forEach((index, column) => place.set(index, (column + 0.5) / row.length));
      rows.push(row);
    }
  }
  return rows;
}

// Edges that pass rows keep beside their boxes: a lane is a free place across, nearest to both of its ends.

function laneBetween(from, to, boxesBetween, lanes, width) {
  const clear = (x) => x >= 2 && x <= width - 2 && boxesBetween.every(([begin, end]) => x < begin || x > end) &&
    lanes.every((lane) => Math.abs(lane.x - x) >= LANE || lane.begin >= to.y || lane.end <= from.y);
  const detour = (x) => Math.abs(x - from.x) + Math.abs(x - to.x);
  let found = null;
  for (const start of [[from.x, to.x], ...boxesBetween.map(([begin, end]) => [begin - LANE, end + LANE])].flat()) {
    for (let shift = -10; shift <= 10; shift += 1) {
      const x = start + shift * LANE;
      if (clear(x) && (found === null || detour(x) < detour(found))) found = x;
    }
  }
  return found;
}

function edge(from, to, lane) {
  const y = from.y + BOX_HEIGHT, half = ROW_GAP / 2;
  if (lane === null) {
    const bend = Math.max(half, (to.y - y) / 3);
    return `M${from.x} ${y} C${from.x} ${y + bend} ${to.x} ${to.y - bend} ${to.x} ${to.y}`;
  }
  return `M${from.x} ${y} C${from.x} ${y + half} ${lane} ${y + half} ${lane} ${y + ROW_GAP} V${to.y - ROW_GAP} ` +
    `C${lane} ${to.y - half} ${to.x} ${to.y - half} ${to.x} ${to.y}`;
}

function edges(sources, places, rows, width) {
  const lanes = [], pairs = sources.flatMap((found, index) => found.map((other) => [other, index]));
  const rowsPassed = ([from, to]) => places.get(to).row - places.get(from).row;
  // Short ways first: they get the lanes next to the boxes.
  pairs.sort((a, b) => rowsPassed(a) - rowsPassed(b));
  return pairs.map(([other, index]) => {
    const from = places.get(other), to = places.get(index);
    const between = rows.slice(from.row + 1, to.row);
    // Rows of as many boxes have them in the same places.
    const layouts = new Map(between.map((row) => [row.length, row]));
    const boxes = [...layouts.values()].flat().map((i) => [places.get(i).begin, places.get(i).end]);
    const lane = boxes.length ? laneBetween(from, to, boxes, lanes, width) : null;
    if (lane !== null) lanes.push({ x: lane, begin: from.y, end: to.y });
    return element("path", { "data-from": other, "data-to": index, d: edge(from, to, lane) });
  });
}

function showGraph() {
  const { steps, calls } = graph();
  byId("submission").textContent = `one submission${calls > 1 ? `, ${calls} times a call` : ""}`;
  const width = byId("graph").clientWidth;
  const columns = Math.max(1, Math.floor((width - 2 * MARGIN + COLUMN_GAP) / (NARROWEST_BOX + COLUMN_GAP)));
  const sources = producers(steps), rows = rowsOf(steps, sources, columns);
  const largest = Math.max(...steps.map(weight), 1);
  const places = new Map(), boxes = [];
  rows.forEach((row, line) => {
    const boxWidth = Math.min(250, (width - 2 * MARGIN - (row.length - 1) * COLUMN_GAP) / row.length);
    const left = (width - row.length * boxWidth - (row.length - 1) * COLUMN_GAP) / 2;
    row.forEach((index, column) => {
      const step = steps[index];
      const x = left + column * (boxWidth + COLUMN_GAP), y = line * (BOX_HEIGHT + ROW_GAP);
      places.set(index, { x: x + boxWidth / 2, y, row: line, begin: x, end: x + boxWidth });
      const cost = [step.time_ns === null ? null : joined(time(step.time_ns)),
        joined(bytes(step.read_bytes + step.written_bytes))].filter(Boolean).join(" · ");
      boxes.push(element("button", {
        class: "box", "data-step": index, "aria-pressed": index === shown.step, title: step.kernel,
        style: `left:${x}px;top:${y}px;width:${boxWidth}px;--share:${(0.12 + 0.88 * weight(step) / largest).toFixed(3)}`,
        onclick: () => select(index, true),
      }, step.barrier ? element("span", { class: "wait", title: "waits at a barrier" }) : null,
      element("span", { class: "name" }, `${index}\u00a0 ${breakable(nameOf(step))}`), element("span", { class: "cost" }, cost)));
    });
  });
  const height = rows.length * (BOX_HEIGHT + ROW_GAP) - ROW_GAP;
  byId("graph").style.height = `${height}px`;
  fill("graph", element("svg", { width, height }, ...edges(sources, places, rows, width)), ...boxes);
}

// One kernel

function facts(step, kernel) {
  const moved = step.read_bytes + step.written_bytes, s = kernel.statistics, measured = step.time_ns !== null;
  const workgroups = step.groups.reduce((a, b) => a * b, 1);
  const found = [
    ["time", measured ? joined(time(step.time_ns)) : null],
    ["of the roofline", step.share_of_roofline === null ? null : percent(step.share_of_roofline)],
    ["shortest possible", step.bound_ns === null ? null : joined(time(step.bound_ns))],
    ["read", joined(bytes(step.read_bytes))],
    ["written", joined(bytes(step.written_bytes))],
    ["operations", joined(operations(step.flops))],
    ["bandwidth", measured && moved ? `${(moved / step.time_ns).toFixed(2)} GB/s` : null],
    ["arithmetic", measured && step.flops ? `${(step.flops / step.time_ns).toFixed(2)} GFLOP/s` : null],
    ["grid", `${step.groups.join(" × ")} (${workgroups})`],
    ["tile", kernel.configuration || null],
    ["workgroup", `${kernel.workgroup_size}`],
    ["subgroup", kernel.subgroup_size ? `${kernel.subgroup_size}` : s["Subgroup size"] ?? "any"],
    ["VGPRs", s["VGPRs"]],
    ["SGPRs", s["SGPRs"]],
    ["LDS", s["LDS size"] === undefined ? null : joined(bytes(s["LDS size"]))],
    ["waves per SIMD", s["Subgroups per SIMD"]],
    ["instructions", s["Instructions"]],
    ["spilled registers", s["Spilled VGPRs"] === undefined ? null : s["Spilled VGPRs"] + s["Spilled SGPRs"]],
  ].filter(([, value]) => value !== null && value !== undefined);
  return element("dl", { class: "facts" }, ...found.map(([label, value]) => element("div", {},
    element("dt", {}, label), element("dd", { class: label.startsWith("spilled") && value > 0 ? "warn" : null }, String(value)))));
}

function highlighted(text) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(/\/\/[^\n]*|\b\d[\w.]*\b|\b[A-Za-z_]\w*\b/g)) {
    const word = match[0];
    const kind = word.startsWith("//") ? "c" : /^\d/.test(word) ? "n" : KEYWORDS.has(word) ? "k" : null;
    if (kind === null) continue;
    parts.push(text.slice(at, match.index), element("span", { class: kind }, word));
    at = match.index + word.length;
  }
  return [...parts, text.slice(at)];
}

const code = (...children) => element("pre", { class: "code", tabindex: 0 }, ...children);

// Lines of one file that lie close together are shown as one excerpt.
function excerpts(sources) {
  const found = [];
  for (const source of [...sources].sort((a, b) => a.file.localeCompare(b.file) || a.line - b.line)) {
    const last = found[found.length - 1], first = source.context.length ? source.context[0][0] : source.line;
    if (last === undefined || last.file !== source.file || first > Math.max(...last.lines.keys()) + 1) {
      found.push({ file: source.file, function: source.function, here: new Set(), lines: new Map() });
    }
    const excerpt = found[found.length - 1];
    excerpt.here.add(source.line);
    source.context.forEach(([number, text]) => excerpt.lines.set(number, text));
    if (!excerpt.lines.has(source.line)) excerpt.lines.set(source.line, source.code);
  }
  return found;
}

function excerptOf({ file, function: name, here, lines }) {
  const indent = Math.min(...[...lines.values()].filter((text) => text.trim()).map((text) => text.search(/\S/)), 80);
  return element("div", { class: "source" },
    element("h3", { title: file }, `${fileName(file)}:${[...here].join(", ")}  in ${name}`),
    code(...[...lines].map(([number, text]) => element("span", { class: here.has(number) ? "line here" : "line" },
      element("i", {}, String(number)), text.slice(indent) || " "))));
}

function nodes(step) {
  return element("ul", { class: "nodes" }, ...step.nodes.map((node) => element("li", {},
    element("code", {}, `${node.node} = ${node.op}(${node.inputs.join(", ")})`),
    element("div", { class: "muted small" },
      [node.value, node.composite && `part of ${node.composite}`, node.module].filter(Boolean).join(" · ")))));
}

function showDetail() {
  const step = graph().steps[shown.step];
  if (step === undefined) return fill("detail");
  const kernel = kernelOf(step);
  const sources = step.sources.map((index) => graph().sources[index]);
  const tabs = {
    Source: () => element("div", { class: "beside" },
      element("div", {}, ...(sources.length ? excerpts(sources).map(excerptOf) : [element("p", { class: "muted" }, "No line of the program: an eager operator.")])),
      element("div", {}, element("h3", {}, `${kernel.name} · Slang`), code(...highlighted(kernel.slang)))),
    "FX nodes": () => nodes(step),
    "SPIR-V": () => code(kernel.spirv),
  };
  if (kernel.isa) tabs["Machine code"] = () => code(kernel.isa);
  const chosen = shown.tab in tabs ? shown.tab : "Source";
  const modules = step.modules.join(", ");
  fill("detail",
    element("h2", {}, nameOf(step)),
    element("p", { class: "muted small" }, `dispatch ${shown.step}${modules ? ` · ${modules}` : ""}${step.barrier ? " · waits at a barrier" : ""}`),
    facts(step, kernel),
    element("div", { class: "tabs", role: "tablist" }, ...Object.keys(tabs).map((name) => element("button",
      { role: "tab", "aria-selected": name === chosen, onclick: () => { shown.tab = name; showDetail(); } }, name))),
    tabs[chosen]());
}

// Memory over time

function showMemory() {
  const { steps, buffers, arena_bytes: arena } = graph();
  const arenaBlocks = buffers.filter((b) => b.kind === "arena"), outputs = buffers.filter((b) => b.kind === "output");
  byId("arena").textContent = arena ? joined(bytes(arena)) : "no intermediates";
  if (arenaBlocks.length + outputs.length === 0) {
    return fill("memory", element("p", { class: "muted" }, "Nothing is kept: all results are written to inputs."));
  }
  const left = 58, cell = Math.max(14, (byId("memory").clientWidth - left - 12) / Math.max(steps.length, 1));
  const arenaHeight = arenaBlocks.length ? 200 : 0, lane = 14;
  const top = 8, below = top + arenaHeight + (arenaHeight ? 12 : 0);
  const bottom = below + outputs.length * lane, width = left + steps.length * cell + 12;
  const x = (index) => left + index * cell;
  const touches = (b) => { const s = steps[shown.step]; return s && (s.reads.includes(b.name) || s.writes.includes(b.name)); };
  const block = (b, y, height, kind) => element("rect", {
    class: `block${kind}${touches(b) ? " near" : ""}`, x: x(b.first) + 0.5, y, rx: 2,
    width: (b.last - b.first + 1) * cell - 1, height: Math.max(height, 1.5),
  }, element("title", {}, `${b.name}: ${joined(bytes(b.nbytes))}, dispatches ${b.first} to ${b.last}`));
  const parts = [element("rect", { class: "now", x: x(shown.step), y: top, width: cell, height: bottom - top })];
  for (const b of arenaBlocks) {
    const height = (b.nbytes / arena) * arenaHeight;
    parts.push(block(b, top + arenaHeight - (b.offset / arena) * arenaHeight - height, height, ""));
  }
  outputs.forEach((b, index) => parts.push(block(b, below + index * lane + 1, lane - 2, " kept")));
  steps.forEach((step, index) => {
    if (step.barrier) parts.push(element("line", { class: "barrier", x1: x(index), x2: x(index), y1: top, y2: bottom }));
    const every = Math.ceil(26 / cell);
    if (index % every === 0) parts.push(element("text", { x: x(index) + cell / 2, y: bottom + 16, "text-anchor": "middle" }, String(index)));
  });
  for (const at of [x(0), x(steps.length)]) parts.push(element("line", { class: "submission", x1: at, x2: at, y1: top - 4, y2: bottom + 3 }));
  if (arenaHeight) {
    parts.push(element("text", { x: left - 8, y: top + 9, "text-anchor": "end" }, joined(bytes(arena))));
    parts.push(element("text", { x: left - 8, y: top + arenaHeight, "text-anchor": "end" }, "0"));
  }
  if (outputs.length) parts.push(element("text", { x: left - 8, y: below + 11, "text-anchor": "end" }, "outputs"));
  fill("memory", element("svg", { width, height: bottom + 24, role: "img", "aria-label": "Memory plan over time" }, ...parts));
}

// The table

function showTable() {
  const { steps, kernels } = graph(), measured = isMeasured(graph()), total = graphTime(graph()) || 1;
  const registers = kernels.some((kernel) => kernel.statistics["VGPRs"] !== undefined);
  const columns = [["#"], ["operators", "words"], ...(measured ? [["time"], ["share"], ["roofline"]] : [["shortest time"]]),
    ["moved"], ["operations"], ...(registers ? [["VGPRs"], ["LDS"], ["waves/SIMD"], ["spills"]] : []), ["source", "words"]];
  const row = (step, index) => {
    const s = kernelOf(step).statistics, share = step.share_of_roofline;
    const roofline = share === null ? "" : element("span", {}, percent(share),
      element("span", { class: "bar" }, element("i", { style: `width:${Math.min(100, 100 * share)}%` })));
    const places = [...new Set(step.sources.map((i) => graph().sources[i]).map((source) => `${fileName(source.file)}:${source.line}`))];
    const cells = [index, nameOf(step),
      ...(measured ? [step.time_ns === null ? "" : joined(time(step.time_ns)), percent((step.time_ns ?? 0) / total), roofline]
        : [step.bound_ns === null ? "" : joined(time(step.bound_ns))]),
      joined(bytes(step.read_bytes + step.written_bytes)), joined(operations(step.flops)),
      ...(registers ? [s["VGPRs"], joined(bytes(s["LDS size"] ?? 0)), s["Subgroups per SIMD"], (s["Spilled VGPRs"] ?? 0) + (s["Spilled SGPRs"] ?? 0)] : []),
      places.join(", ")];
    return element("tr", { tabindex: 0, "data-row": index, "aria-selected": index === shown.step,
      onclick: () => select(index, true), onkeydown: (event) => { if (event.key === "Enter") select(index, true); } },
    ...cells.map((cell, column) => element("td", { class: columns[column][1] }, cell instanceof Node ? cell : String(cell ?? ""))));
  };
  fill("table", element("thead", {}, element("tr", {}, ...columns.map(([name, kind]) => element("th", { class: kind }, name)))),
    element("tbody", {}, ...steps.map(row)));
}

function mark() {
  document.querySelectorAll(".box").forEach((box) => box.setAttribute("aria-pressed", Number(box.dataset.step) === shown.step));
  document.querySelectorAll("[data-row]").forEach((row) => row.setAttribute("aria-selected", Number(row.dataset.row) === shown.step));
  document.querySelectorAll("#graph path").forEach((path) => path.classList.toggle("near",
    Number(path.dataset.from) === shown.step || Number(path.dataset.to) === shown.step));
}

// The address names what is shown, so that it can be linked to: #report.graph.dispatch
function addressed() {
  const [report, graph, step] = location.hash.slice(1).split(".").map(Number);
  const steps = inspection.reports[report]?.graphs[graph]?.steps;
  return steps?.[step] === undefined ? null : { report, graph, step };
}

function select(index, asked) {
  shown.step = index;
  if (asked) history.replaceState(null, "", `#${shown.report}.${shown.graph}.${shown.step}`);
  mark();
  showDetail();
  showMemory();
  if (asked && matchMedia("(max-width: 900px)").matches) byId("detail").scrollIntoView({ behavior: "smooth" });
}

function show() {
  showHeader();
  showTiles();
  showGraph();
  showTable();
  const weights = graph().steps.map(weight), linked = addressed();
  const here = linked !== null && linked.report === shown.report && linked.graph === shown.graph;
  select(here ? linked.step : Math.max(0, weights.indexOf(Math.max(...weights))), false);
}

let width = window.innerWidth;
addEventListener("resize", () => {
  if (window.innerWidth === width) return; // phones report the address bar's coming and going
  width = window.innerWidth;
  showGraph();
  showMemory();
  mark();
});
Object.assign(shown, addressed());
show();
