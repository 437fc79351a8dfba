"use strict";
// A comparison: details of the token or the cell that is pointed at or focused; arrow keys move; two languages.
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const MESSAGES = {
  en: { next: "what comes next", p: "its probability", kl: "nats", state: "its state moved by", before: "guesses before", after: "after", moved: "attention moved", energy: "change of the weights", share: "share of the change", alone: "alone it makes", link: "most of all", none: "nothing predicts this token" },
  zh: { next: "接下来的 token", p: "它的概率", kl: "nats", state: "状态移动了", before: "之前的猜测", after: "之后", moved: "注意力移动", energy: "权重的变化", share: "占变化的份额", alone: "单独造成", link: "变化最大", none: "没有对这个 token 的预测" },
};
const message = (key) => MESSAGES[root.lang][key];
const percent = (x) => `${(100 * x).toFixed(Math.abs(x) < 0.095 ? 1 : 0)} %`;
const guesses = (list) => list.map(([word, p]) => `${word} ${p.toFixed(2)}`).join(", ");

function tellToken(i) {
  const t = data.tokens[i];
  if (t.change === null) return `${t.label}: ${message("none")}`;
  if (!t.top_before.length) return `${t.label}: ${message("state")} ${percent(t.change)}`;
  const own = t.before === null ? "" : ` · ${message("p")} ${t.before.toPrecision(2)} → ${t.after.toPrecision(2)}`;
  return `${t.label || message("next")}${own} · KL ${t.change.toPrecision(3)} ${message("kl")} · ${message("before")}: ${guesses(t.top_before)} · ${message("after")}: ${guesses(t.top_after)}`;
}

function tellCell(key) {
  const c = data.cells[key], parts = [];
  for (const name of ["moved", "share", "alone", "energy"]) if (c[name] !== undefined && c[name] !== null) parts.push(`${message(name)} ${percent(c[name])}`);
  if (c.link) parts.push(`${message("link")}: ${c.link[0]} → ${c.link[1]} ${c.link[2].toFixed(2)} → ${c.link[3].toFixed(2)}`);
  return `${c.name[root.lang]}: ${parts.join(" · ")}`;
}

// One element of a group is in the tab order; arrow keys move to others.
function group(elements, tell, panel, columns) {
  if (!elements.length) return;
  const show = (element) => { panel.textContent = tell(element); elements.forEach((e) => e.classList.toggle("chosen", e === element)); };
  const focus = (element) => { elements.forEach((e) => { e.tabIndex = e === element ? 0 : -1; }); element.focus(); };
  elements.forEach((element, i) => {
    element.tabIndex = i ? -1 : 0;
    element.addEventListener("mouseenter", () => show(element));
    element.addEventListener("focus", () => show(element));
    element.addEventListener("click", () => focus(element));
    element.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -i, End: elements.length - 1 - i }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const other = elements[i + step];
      if (other) focus(other);
    });
  });
}

group([...document.querySelectorAll("[data-token]")], (e) => tellToken(Number(e.dataset.token)), document.getElementById("token-detail"), 10);
for (const table of document.querySelectorAll("table.heads")) group([...table.querySelectorAll("[data-cell]")], (e) => tellCell(e.dataset.cell), document.getElementById("cell-detail"), Number(table.dataset.columns));

const button = document.getElementById("language");
function speak(language) { root.lang = language; button.textContent = language === "en" ? "中文" : "English"; }
button.addEventListener("click", () => speak(root.lang === "en" ? "zh" : "en"));
speak((navigator.language || "en").startsWith("zh") ? "zh" : "en");
root.dataset.drawn = "1";
