"use strict";
// One trace: an overview of all heads, the matrix of one, and the text shaded by what one token attends to.
// A weight is one byte, 255 times its square root; compressed with gzip and encoded as base64.
const began = performance.now();
const data = JSON.parse(document.getElementById("data").textContent);
const MESSAGES = {
  en: { sink: "hide the first token", overview: "Every head of every layer. Click one, or use the arrow keys.", words: "What the selected token attends to", lens: "Logit lens: what each layer would predict", experts: "Which experts each token went to, with their weights", load: "most used", head: "layer {l}, head {h}", self: "self-attention", decoder: "decoder self-attention", cross: "cross-attention", embedding: "embedding", layer: "layer", other: "中文" },
  zh: { sink: "隐藏第一个 token", overview: "每一层的每一个头。点击选择,或用方向键。", words: "所选 token 关注哪里", lens: "Logit lens:每一层会预测什么", experts: "每个 token 经过哪些专家,以及权重", load: "用得最多", head: "第 {l} 层,第 {h} 头", self: "自注意力", decoder: "解码器自注意力", cross: "交叉注意力", embedding: "词嵌入", layer: "层", other: "English" },
};
const $ = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
const LUT = Array.from({ length: 256 }, (_, v) => {
  const t = v / 255, [a, b] = dark ? [[20, 24, 29], [110, 180, 255]] : [[255, 255, 255], [8, 64, 129]];
  return a.map((x, i) => Math.round(x + (b[i] - x) * t));
});
const state = { language: (navigator.language || "en").startsWith("zh") ? "zh" : "en", ...data.start, row: 0, column: -1, sink: false };
const weights = {};

async function unpack(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const currentKind = () => data.kinds[state.kind];
const message = (key) => MESSAGES[state.language][key];
const first = () => (state.sink ? 1 : 0);

function head(layer, which) {
  const k = currentKind(), size = k.rows.length * k.columns.length;
  return weights[state.kind].subarray((layer * k.heads + which) * size, (layer * k.heads + which + 1) * size);
}

// The weights of one row as numbers; without the first token they are normalised to a sum of one.
function rowOf(bytes, row) {
  const n = currentKind().columns.length, values = new Float32Array(n);
  let sum = 0;
  for (let k = first(); k < n; k++) { values[k] = (bytes[row * n + k] / 255) ** 2; if (state.sink) sum += values[k]; }
  if (state.sink && sum > 0) for (let k = 1; k < n; k++) values[k] /= sum;
  return values;
}

function pixels(context, width, height, paint) {
  const image = context.createImageData(width, height), out = image.data;
  paint((at, v) => { const c = LUT[v], i = 4 * at; out[i] = c[0]; out[i + 1] = c[1]; out[i + 2] = c[2]; out[i + 3] = 255; });
  context.putImageData(image, 0, 0);
}

function drawOverview() {
  const k = currentKind(), canvas = $("overview"), available = Math.min(canvas.parentElement.clientWidth, 620);
  const cell = Math.max(14, Math.floor(available / k.heads)), inner = cell - 3;
  canvas.width = cell * k.heads; canvas.height = cell * k.layers;
  const context = canvas.getContext("2d"), Q = k.rows.length, K = k.columns.length, width = canvas.width;
  pixels(context, width, canvas.height, (put) => {
    for (let l = 0; l < k.layers; l++) for (let h = 0; h < k.heads; h++) {
      const bytes = head(l, h);
      for (let y = 0; y < inner; y++) {
        const q0 = Math.floor(y * Q / inner), q1 = Math.max(q0 + 1, Math.floor((y + 1) * Q / inner));
        for (let x = 0; x < inner; x++) {
          const k0 = Math.floor(x * K / inner), k1 = Math.max(k0 + 1, Math.floor((x + 1) * K / inner));
          let most = 0; // the largest weight of this pixel, so that thin lines stay visible
          for (let q = q0; q < q1; q++) for (let c = k0; c < k1; c++) if (bytes[q * K + c] > most && c >= first()) most = bytes[q * K + c];
          put((l * cell + y) * width + h * cell + x, most);
        }
      }
    }
  });
  canvas.dataset.cell = cell;
  context.strokeStyle = getComputedStyle(document.body).getPropertyValue("--accent");
  context.lineWidth = 2;
  context.strokeRect(state.head * cell - 0.5, state.layer * cell - 0.5, inner + 1, inner + 1);
  canvas.setAttribute("aria-label", `${message(state.kind)}: ${k.layers} × ${k.heads}`);
}

function drawMatrix() {
  const k = currentKind(), canvas = $("matrix"), Q = k.rows.length, K = k.columns.length, scale = devicePixelRatio || 1;
  const available = Math.min(canvas.parentElement.clientWidth - 52, 900), labelled = Math.max(Q, K) <= 64;
  const left = labelled ? 96 : 8, above = labelled ? 84 : 8;
  const cell = labelled ? Math.max(7, Math.min(26, Math.floor((available - left) / K))) : Math.max(1, (available - left) / Math.max(K, Q));
  const width = left + cell * K + (labelled ? 52 : 0), height = above + cell * Q;
  canvas.width = width * scale; canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  const context = canvas.getContext("2d"), bytes = head(state.layer, state.head), buffer = document.createElement("canvas");
  buffer.width = K; buffer.height = Q;
  pixels(buffer.getContext("2d"), K, Q, (put) => {
    for (let q = 0; q < Q; q++) { const row = rowOf(bytes, q); for (let c = 0; c < K; c++) put(q * K + c, Math.round(255 * Math.sqrt(row[c]))); }
  });
  context.scale(scale, scale);
  context.imageSmoothingEnabled = false;
  context.drawImage(buffer, left, above, cell * K, cell * Q);
  canvas.dataset.box = JSON.stringify([left, above, cell]);
  const style = getComputedStyle(document.body), ink = style.getPropertyValue("--ink"), accent = style.getPropertyValue("--accent");
  context.strokeStyle = accent;
  context.strokeRect(left, above + state.row * cell, cell * K, cell);
  if (labelled) {
    context.font = `${Math.min(13, cell)}px system-ui, "Noto Sans CJK SC", sans-serif`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    k.rows.forEach(([label], q) => { context.fillStyle = q === state.row ? accent : ink; context.fillText(label, left - 6, above + (q + 0.5) * cell, left - 8); });
    k.columns.forEach(([label], c) => {
      context.save();
      context.translate(left + (c + 0.6) * cell, above - 6);
      context.rotate(-Math.PI / 3);
      context.textAlign = "left";
      context.fillStyle = c === state.column ? accent : ink;
      context.fillText(label, 0, 0, 90);
      context.restore();
    });
  }
  canvas.setAttribute("aria-label", message("head").replace("{l}", state.layer).replace("{h}", state.head));
}

function drawText() {
  const k = currentKind(), box = $("text"), row = rowOf(head(state.layer, state.head), state.row), same = state.kind !== "cross";
  const tint = LUT.at(-1).join(",");
  box.replaceChildren(...k.columns.map(([label, special], c) => {
    const span = document.createElement("span");
    span.textContent = label;
    span.className = (special ? "special " : "") + (same && c === state.row ? "at" : "");
    span.style.background = `rgba(${tint},${(0.75 * Math.sqrt(row[c])).toFixed(3)})`;
    span.title = row[c].toFixed(3);
    if (same) span.onmouseenter = () => choose({ row: c });
    return span;
  }));
}

function drawSummary() {
  const k = currentKind(), row = rowOf(head(state.layer, state.head), state.row), role = k.roles[state.layer][state.head];
  const order = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, 3), name = message("head").replace("{l}", state.layer).replace("{h}", state.head);
  const summary = $("summary"), strong = document.createElement("b");
  strong.textContent = `${name}${role ? " · " + role : ""}`;
  const columns = state.column >= 0 ? [state.column] : order;
  const links = columns.map((c) => `${k.rows[state.row][0]} → ${k.columns[c][0]} ${row[c].toFixed(3)}`).join(" · ");
  summary.replaceChildren(strong, document.createTextNode("   " + links));
}

function drawLens() {
  const g = data.lens;
  $("lens").hidden = !g;
  if (!g) return;
  const table = $("lens-table"), rows = [];
  for (let l = g.labels.length - 1; l >= 0; l--) {
    const tr = document.createElement("tr"), th = document.createElement("th");
    th.textContent = l ? `${message("layer")} ${l - 1}` : message("embedding");
    tr.append(th, ...g.labels[l].map((labels, t) => {
      const td = document.createElement("td"), p = g.probabilities[l][t];
      td.textContent = labels[0];
      td.title = labels.map((label, i) => `${label} ${p[i]}`).join("\n");
      td.style.background = `rgba(${LUT.at(-1).join(",")},${(0.55 * p[0]).toFixed(3)})`;
      return td;
    }));
    rows.push(tr);
  }
  const foot = document.createElement("tr");
  foot.append(document.createElement("th"), ...g.tokens.map((token) => Object.assign(document.createElement("th"), { textContent: token })));
  table.replaceChildren(...rows, foot);
}

// A hue for each expert; turning by the golden ratio keeps neighbours apart.
const hue = (expert) => Math.round(360 * ((expert * 0.618034) % 1));

function drawExperts() {
  const e = currentKind().experts, table = $("experts-table");
  $("experts").hidden = !e;
  if (!e) return;
  const cell = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  const top = document.createElement("tr"), loads = e.layers.map((_, l) => e.load[l].map((share, i) => `${i}: ${Math.round(100 * share)} %`).join("\n"));
  top.append(cell("th", ""), ...e.tokens.map((token) => cell("th", token)), cell("th", message("load")));
  const rows = e.layers.map((layer, l) => {
    const tr = document.createElement("tr"), most = Math.max(...e.load[l]), last = cell("td", `${e.load[l].indexOf(most)}: ${Math.round(100 * most)} %`);
    last.title = loads[l];
    last.style.padding = "2px 6px";
    tr.append(cell("th", `${message("layer")} ${layer}`), ...e.chosen[l].map((chosen) => {
      const td = document.createElement("td");
      td.append(...chosen.map(([expert, weight]) => {
        const span = cell("span", `${expert} · ${weight.toFixed(2)}`);
        span.style.background = `hsl(${hue(expert)} 55% 38%)`;
        return span;
      }));
      if (!chosen.length) td.textContent = "–";
      return td;
    }), last);
    return tr;
  });
  table.replaceChildren(top, ...rows);
}

function drawLabels() {
  document.documentElement.lang = state.language;
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = message(element.dataset.text);
  $("title").textContent = data.title;
  $("caveat").textContent = data.caveat[state.language];
  $("language").textContent = message("other");
  $("kinds").replaceChildren(...Object.keys(data.kinds).map((name) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = message(name);
    button.setAttribute("aria-pressed", name === state.kind);
    button.onclick = () => { choose({ kind: name, layer: 0, head: 0, row: 0, column: -1 }); drawLabels(); };
    return button;
  }));
}

function choose(change) {
  const before = { ...state };
  Object.assign(state, change);
  const k = currentKind();
  state.layer = (state.layer + k.layers) % k.layers;
  state.head = (state.head + k.heads) % k.heads;
  state.row = Math.max(0, Math.min(state.row, k.rows.length - 1));
  if (["kind", "layer", "head", "sink"].some((name) => before[name] !== state[name])) drawOverview();
  if (before.kind !== state.kind) drawExperts();
  drawMatrix(); drawText(); drawSummary();
}

function addListeners() {
  $("overview").onclick = (event) => {
    const box = event.target.getBoundingClientRect(), cell = event.target.dataset.cell * box.width / event.target.width;
    choose({ head: Math.min(Math.floor((event.clientX - box.left) / cell), currentKind().heads - 1), layer: Math.min(Math.floor((event.clientY - box.top) / cell), currentKind().layers - 1) });
  };
  $("overview").onkeydown = (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (step) { event.preventDefault(); choose({ layer: state.layer + step[0], head: state.head + step[1] }); }
  };
  $("matrix").onmousemove = (event) => {
    const box = event.target.getBoundingClientRect(), [left, above, cell] = JSON.parse(event.target.dataset.box), zoom = box.width / parseFloat(event.target.style.width);
    const row = Math.floor(((event.clientY - box.top) / zoom - above) / cell), column = Math.floor(((event.clientX - box.left) / zoom - left) / cell);
    if (row >= 0 && row < currentKind().rows.length && column >= 0 && column < currentKind().columns.length && (row !== state.row || column !== state.column)) choose({ row, column });
  };
  $("matrix").onmouseleave = () => choose({ column: -1 });
  $("matrix").onkeydown = (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step) { event.preventDefault(); choose({ row: state.row + step, column: -1 }); }
  };
  $("sink").onchange = (event) => choose({ sink: event.target.checked });
  $("language").onclick = () => { state.language = state.language === "en" ? "zh" : "en"; drawLabels(); drawLens(); drawExperts(); choose({}); };
  addEventListener("resize", () => { drawOverview(); choose({}); });
}

(async () => {
  for (const [name, k] of Object.entries(data.kinds)) { weights[name] = await unpack(k.weights); k.weights = null; }
  drawLabels(); drawOverview(); choose({}); drawLens(); drawExperts(); addListeners();
  document.documentElement.dataset.drawn = Math.round(performance.now() - began);
})();
