"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");

/* ---- charts: drawn one after the other, again when the theme changes ---- */
const MOST_ROWS = 200;
const shown = new Map();  // figure -> {panel, view}

function paint(value, colours) {
  if (typeof value === "string") return value[0] === "@" ? colours[value.slice(1)] ?? value : value;
  if (Array.isArray(value)) return value.map(v => paint(v, colours));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, paint(v, colours)]));
}

function rowsOf(panel) {
  const columns = Object.entries(data.rows[panel.rows]);
  const count = columns.length ? columns[0][1].length : 0;
  return Array.from({length: count}, (_, i) => Object.fromEntries(columns.map(([name, values]) => [name, values[i]])));
}

async function draw(figure) {
  const state = shown.get(figure);
  const {colours, config} = data.themes[theme()];
  const panel = state.panel;
  const spec = {
    ...paint(data.specs[panel.spec], colours),
    data: {values: rowsOf(panel)}, description: `${panel.title}. ${panel.description}`,
    width: "container", height: panel.height, autosize: {type: "fit-x", contains: "padding"},
  };
  const old = state.view;
  // ast: expressions are interpreted, not compiled, so that the page needs no eval
  const embedded = await vegaEmbed(figure.querySelector(".chart"), spec,
    {mode: "vega-lite", renderer: "svg", actions: false, ast: true, config, tooltip: {theme: theme()}});
  if (old) old.finalize();
  state.view = embedded;
  const chart = figure.querySelector(".chart");
  chart.style.minHeight = `${chart.querySelector("svg").getBoundingClientRect().height}px`;  // nothing jumps when drawn again
}

function show(figure, panel) {
  shown.set(figure, {...shown.get(figure), panel});
  figure.querySelector("figcaption strong").textContent = panel.title;
  figure.querySelector("figcaption span").textContent = panel.description;
  fill(figure);
}

let turn = Promise.resolve();
function drawAll(figures) {
  delete root.dataset.ready;
  turn = turn.then(async () => {
    for (const figure of figures) {
      await draw(figure);
      await new Promise(done => setTimeout(done));  // the page answers in between
    }
    root.dataset.ready = "true";
  });
}

/* ---- the data of a chart as a table, made when it is opened ---- */
function element(name, text, parent) {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
}

function cellText(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? value.toLocaleString("en", {maximumSignificantDigits: 4}) : String(value);
}

function fill(figure) {
  const details = figure.querySelector("details"), place = details.querySelector(".scroll");
  place.replaceChildren();
  if (!details.open) return;
  const panel = shown.get(figure).panel, rows = rowsOf(panel), columns = Object.entries(panel.columns);
  const table = element("table", "", place);
  const head = element("tr", "", element("thead", "", table));
  for (const [, title] of columns) element("th", title, head).scope = "col";
  const body = element("tbody", "", table);
  for (const row of rows.slice(0, MOST_ROWS)) {
    const line = element("tr", "", body);
    columns.forEach(([name], i) => {
      const cell = element(i ? "td" : "th", cellText(row[name]), line);
      if (!i) cell.scope = "row";
    });
  }
  if (rows.length > MOST_ROWS) element("p", `${MOST_ROWS} of ${rows.length} rows; the JSON has all.`, place).className = "small";
}

/* ---- tables that sort and filter ---- */
function sortable(box) {
  const table = box.querySelector("table"), body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells], rows = [...body.rows];
  const valueOf = (row, i) => row.cells[i].dataset.value;
  heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(h => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const numbers = head.classList.contains("number");
    rows.sort((a, b) => {
      const x = valueOf(a, i), y = valueOf(b, i);
      if (x === "" || y === "") return (x === "") - (y === "");  // what is not known comes last, always
      const order = numbers ? x - y : x.localeCompare(y, "en", {numeric: true});
      return down ? -order : order;
    });
    body.append(...rows);
  }));
  const search = box.querySelector("[data-search]"), selects = [...box.querySelectorAll("[data-column]")];
  const count = box.querySelector(".count");
  function filter() {
    const text = search.value.trim().toLowerCase();
    for (const row of rows) {
      const found = row.textContent.toLowerCase().includes(text);
      row.hidden = !found || selects.some(s => s.value && valueOf(row, +s.dataset.column) !== s.value);
    }
    count.textContent = `${rows.filter(r => !r.hidden).length} of ${rows.length} ${table.dataset.what}`;
  }
  search.addEventListener("input", filter);
  selects.forEach(s => s.addEventListener("change", filter));
}

/* ---- start ---- */
const figures = [...document.querySelectorAll("figure.panel")];
for (const figure of figures) {
  show(figure, data.panels[figure.id][0]);
  figure.querySelector("details").addEventListener("toggle", () => fill(figure));
}
document.querySelectorAll("[data-sorts]").forEach(table => sortable(table.closest(".data")));

for (const select of document.querySelectorAll("[data-choice]")) {
  const here = [...document.getElementById(select.dataset.choice).querySelectorAll("figure.panel")];
  select.addEventListener("change", () => {
    for (const figure of here) show(figure, data.panels[figure.id].find(p => p.label === select.value));
    drawAll(here);
  });
}

for (const map of document.querySelectorAll("[data-over]")) {  // the page holds each image once: it is large
  const image = map.closest("figure").querySelector("img").cloneNode();
  image.alt = "";
  map.prepend(image);
}
const blend = document.getElementById("blend");
if (blend) blend.addEventListener("input", () => root.style.setProperty("--blend", blend.value / 100));

const button = document.getElementById("theme");
function name() { button.textContent = theme() === "dark" ? "Light theme" : "Dark theme"; }
button.hidden = false;
button.addEventListener("click", () => {
  root.dataset.theme = theme() === "dark" ? "light" : "dark";
  name();
  drawAll(figures);
});
dark.addEventListener("change", () => { if (!root.dataset.theme) { name(); drawAll(figures); } });
name();
drawAll(figures);
})();
