// What a reader can do on the page: find an object, sort and search tables, read the match matrix.
// All text from data gets into the page as text, never as HTML.
const dark = matchMedia("(prefers-color-scheme: dark)");
const light = () => document.documentElement.classList.toggle("dark", dark.matches);
light();

/** Unpack what is on the page compressed and in base64. */
async function unpacked(code) {
  const bytes = Uint8Array.from(atob(code), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}
const textOf = async (id) =>
  new TextDecoder().decode(await unpacked(document.getElementById(id).textContent));

/** Make an element with attributes and children, which are elements or text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const page = JSON.parse(await textOf("page-data"));
const { domains, pairs } = page;
const shown = (value) => (value === null ? "–" : String(value));
const percent = (p) => (p > 0 && p < 0.005 ? "< 1%" : `${Math.round(100 * p)}%`);
const asHtml = (text) => make("span", {}, text).innerHTML;
const titleOf = (d, i) => `${domains[d].title}: ${domains[d].objects[i]}`;

// -- an object and its partners --------------------------------------------------------------------

const finder = document.getElementById("finder");
const find = document.getElementById("find");
const hits = document.getElementById("hits");
const card = document.getElementById("object");
const MOST_HITS = 24;

/** List the objects whose label has the text in it. */
function search() {
  const text = find.value.trim().toLowerCase();
  const found = [];
  let n = 0;
  domains.forEach((domain, d) =>
    domain.objects.forEach((label, i) => {
      if (!text || !titleOf(d, i).toLowerCase().includes(text)) return;
      if (n++ < MOST_HITS) found.push([d, i]);
    }),
  );
  const buttons = found.map(([d, i]) =>
    make("button", { type: "button", onclick: () => choose(d, i) }, titleOf(d, i)),
  );
  const more = n > MOST_HITS ? [`and ${n - MOST_HITS} more`] : [];
  hits.replaceChildren(...buttons, ...more, ...(text && !n ? ["No object is called so."] : []));
}

/** Give the partners of an object, by domain: the pair, the other domain, and its list. */
function partnersOf(d, i) {
  return pairs.flatMap((pair) => {
    if (pair.a === d) return [[pair, pair.b, pair.ab[i]]];
    return pair.b === d ? [[pair, pair.a, pair.ba[i]]] : [];
  });
}

/** Say what is known of an object, as pairs of a name and a value. */
function rowOf(d, i) {
  const { columns, rows } = domains[d];
  if (!rows) return [];
  return columns ? columns.map((name, k) => [name, rows[i][k]]) : rows[i];
}

/** Show an object, its partners, and its row beside that of one of them. */
function choose(d, i, other = null, scroll = true) {
  const domain = domains[d];
  const lists = partnersOf(d, i);
  if (other === null) {
    const best = lists.filter(([, , list]) => list.length).map(([, e, list]) => [e, list[0][0], list[0][1]]);
    best.sort((one, two) => two[2] - one[2]);
    if (best.length) other = best[0].slice(0, 2);
  }
  const where = domain.cluster[i] < 0 ? "In no cluster" : `Cluster ${domain.cluster[i]}`;
  const told = [where];
  if (domain.confidence[i] !== null)
    told.push(`it is there with each of the others with probability ${percent(domain.confidence[i])}`);
  if (domain.unmatched[i] !== null)
    told.push(`it has no counterpart with probability ${percent(domain.unmatched[i])}`);
  const parts = lists.map(([pair, e, list]) => {
    const head = make("h3", {}, `Partners in ${domains[e].title}`);
    const lines = list.map(([j, p]) => {
      const pressed = other && other[0] === e && other[1] === j;
      const bar = make("span", { class: "track", "aria-hidden": "true" }, make("i", { style: `width:${100 * p}%` }),
        make("u", { style: `left:${100 * pair.chance}%`, title: "two objects taken at random" }));
      const name = make("button", { type: "button", "aria-pressed": String(pressed), title: "Compare the two",
        onclick: () => choose(d, i, [e, j], false) }, domains[e].objects[j]);
      return make("div", { class: "partner" }, name, bar, make("span", {}, percent(p)));
    });
    const none = list.length ? [] : [make("p", { class: "note" }, "None.")];
    return make("div", {}, head, ...lines, ...none);
  });
  card.replaceChildren(
    make("h3", {}, titleOf(d, i)),
    make("p", { class: "note" }, `${told.join("; ")}.`),
    make("div", { class: "columns" }, ...parts),
    make("p", { class: "note" }, "Bars are probabilities to share a cluster; the mark is that of two objects taken at random."),
    ...(other ? [beside(d, i, ...other)] : []),
  );
  card.hidden = false;
  if (scroll) card.scrollIntoView({ block: "nearest" });
}

/** Show the rows of two objects side by side: what both have on one line. */
function beside(d, i, e, j) {
  const [one, two] = [rowOf(d, i), rowOf(e, j)];
  if (!one.length && !two.length) return make("span");
  const go = make("button", { type: "button", onclick: () => choose(e, j) }, `Partners of ${domains[e].objects[j]}`);
  const names = new Set(one.map(([name]) => name));
  const [left, right] = [new Map(one), new Map(two)];
  const heads = [titleOf(d, i), titleOf(e, j)];
  const table = (head, lines) => {
    const top = make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)));
    const body = lines.map(([name, ...values]) =>
      make("tr", {}, make("th", { scope: "row" }, name), ...values.map((v) => make("td", {}, shown(v)))),
    );
    return make("div", { class: "wide" }, make("table", {}, make("thead", {}, top), make("tbody", {}, ...body)));
  };
  if (domains[d].named && domains[e].named && two.some(([name]) => names.has(name))) {
    const all = [...new Set([...names, ...right.keys()])];
    const lines = all.map((name) => [name, left.get(name) ?? null, right.get(name) ?? null]);
    return make("div", {}, make("h3", {}, "Side by side"), table(["", ...heads], lines), go);
  }
  return make("div", {}, make("h3", {}, "Side by side"),
    make("div", { class: "columns" }, table(["", heads[0]], one), table(["", heads[1]], two)), go);
}

if (finder) {
  find.addEventListener("input", search);
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && hits.querySelector("button")) hits.querySelector("button").click();
    if (event.key === "ArrowDown") hits.querySelector("button")?.focus();
  });
  hits.addEventListener("keydown", (event) => {
    const next = { ArrowRight: "nextElementSibling", ArrowDown: "nextElementSibling",
      ArrowLeft: "previousElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!next) return;
    event.preventDefault();
    (event.target[next] ?? find).focus();
  });
  finder.hidden = false;
}

// -- the match matrix ------------------------------------------------------------------------------

/** Draw a matrix of match probabilities, and say what is under the pointer. */
async function drawMatrix(matrix, place) {
  const { pair, order, edges, code } = matrix;
  const sides = [pairs[pair].a, pairs[pair].b];
  const values = new Uint8Array(await unpacked(code));
  const [n, m] = edges.map((own) => own.length - 1);
  const canvas = make("canvas", { width: m, height: n, tabindex: 0, role: "img",
    "aria-label": `Match probabilities of ${domains[sides[0]].title} (rows) and ${domains[sides[1]].title} (columns). Arrow keys move, Enter shows the object.` });
  const read = make("p", { class: "read note", "aria-live": "polite" });
  const context = canvas.getContext("2d");
  let at = null;
  const paint = () => {
    const image = context.createImageData(m, n);
    const [low, high] = dark.matches ? [[21, 23, 26], [138, 191, 255]] : [[255, 255, 255], [8, 48, 107]];
    for (let k = 0; k < n * m; k++) {
      for (let c = 0; c < 3; c++) image.data[4 * k + c] = low[c] + ((high[c] - low[c]) * values[k]) / 100;
      image.data[4 * k + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    if (!at) return;
    context.fillStyle = dark.matches ? "#e89a6c" : "#d95f02";
    context.globalAlpha = 0.35;
    context.fillRect(0, at[0], m, 1);
    context.fillRect(at[1], 0, 1, n);
    context.globalAlpha = 1;
  };
  const group = (side, k) => order[side].slice(edges[side][k], edges[side][k + 1]);
  const name = (side, k) => {
    const own = group(side, k);
    const domain = domains[sides[side]];
    const cluster = domain.cluster[own[0]];
    const label = domain.objects[own[0]] + (own.length > 1 ? ` and ${own.length - 1} beside it` : "");
    return `${domain.title}: ${label} (${cluster < 0 ? "in no cluster" : `cluster ${cluster}`})`;
  };
  const move = (row, column) => {
    at = [Math.min(Math.max(row, 0), n - 1), Math.min(Math.max(column, 0), m - 1)];
    read.textContent = `${name(0, at[0])} and ${name(1, at[1])}: ${values[at[0] * m + at[1]]}%`;
    paint();
  };
  const pick = () => at && choose(sides[0], group(0, at[0])[0], [sides[1], group(1, at[1])[0]]);
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    move(Math.floor(((event.clientY - box.top) / box.height) * n), Math.floor(((event.clientX - box.left) / box.width) * m));
  };
  canvas.addEventListener("pointermove", under);
  canvas.addEventListener("click", (event) => { under(event); pick(); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Enter") pick();
    if (!step) return;
    event.preventDefault();
    move((at?.[0] ?? 0) + (at ? step[0] : 0), (at?.[1] ?? 0) + (at ? step[1] : 0));
  });
  canvas.style.height = `${Math.min(40 * n, 560)}px`;
  place.append(make("h3", {}, `${domains[sides[0]].title} (rows) by ${domains[sides[1]].title} (columns)`), canvas, read);
  dark.addEventListener("change", paint);
  paint();
}
const matrices = document.getElementById("matrices");
for (const matrix of page.matrices) await drawMatrix(matrix, matrices);

// -- tables ----------------------------------------------------------------------------------------

dark.addEventListener("change", light);
const source = URL.createObjectURL(new Blob([await textOf("page-library")], { type: "text/javascript" }));
const { default: DataTable } = await import(source);
const asText = DataTable.render.text();
for (const table of document.querySelectorAll("table.sortable"))
  new DataTable(table, { paging: false, searching: false, info: false, order: [] });
const list = document.getElementById("objects");
if (list) {
  const { columns, rows } = page.table;
  const name = columns.indexOf("object");
  new DataTable(list, {
    data: rows, deferRender: true, pageLength: 25, order: [[columns.indexOf("confidence"), "asc"]],
    columns: columns.map((title, k) => ({
      title: asHtml(title), className: k <= name ? "dt-left" : "dt-right", render: k === name ? undefined : asText,
    })),
    columnDefs: [{ targets: name, render: (label, type, row, meta) => {
      if (type === "filter") return asHtml(label); // it is read as HTML
      if (type !== "display") return label;
      const [d, i] = page.place[meta.row];
      return make("button", { type: "button", onclick: () => choose(d, i) }, String(label));
    } }],
    language: { search: "Search objects:", emptyTable: "No object", zeroRecords: "No object is like that" },
  });
}
document.documentElement.dataset.ready = "yes";
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => (d.open = true)));
