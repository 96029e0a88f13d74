// SPDX-License-Identifier: Apache-2.0
// Elements and numbers. Text from outside goes in as text, never as markup.

// el("td", { class: "n", value: 0.5, title: "..." }, "text", element...): `value` is the number as the API has it, `style` an object.
export function el(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "value" && tag !== "input" && tag !== "option") made.dataset.value = String(value);
    else if (name === "style") Object.assign(made.style, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else made.setAttribute(name, value);
  }
  made.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const ns = "http://www.w3.org/2000/svg";
export function svg(tag, props, ...children) {
  const made = document.createElementNS(ns, tag);
  for (const [name, value] of Object.entries(props || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// What is shown of a share keeps apart what differs: 99.95 %, not 100 %.
export function percent(x) {
  if (x === null || x === undefined) return "–";
  const digits = x > 0.9995 && x < 1 ? 3 : x > 0.98 && x < 1 ? 2 : 1;
  return (x * 100).toFixed(digits).replace(/\.0+$/, "") + " %";
}

export function count(n) {
  return n === null || n === undefined ? "–" : Number(n).toLocaleString("en", { maximumFractionDigits: 1 }).replaceAll(",", "\u202f");
}

export function millis(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return (ms * 1000).toFixed(0) + " µs";
  if (ms < 100) return ms.toFixed(ms < 10 ? 1 : 0) + " ms";
  if (ms < 60000) return (ms / 1000).toFixed(ms < 10000 ? 2 : 1) + " s";
  return (ms / 60000).toFixed(1) + " min";
}

export function mib(n) {
  return n >= 1024 * 1024 ? count(n / 1048576) + " TiB" : n >= 1024 ? count(n / 1024) + " GiB" : count(n) + " MiB";
}

export function clock(text) {
  return text ? new Date(text).toLocaleTimeString("en-GB") : "–";
}

export function day(text) {
  return text ? new Date(text).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" }) : "–";
}

export function moment(text) {
  return text ? day(text) + " " + clock(text) : "–";
}

export function ago(text) {
  if (!text) return "never";
  const s = Math.max(0, Math.round((Date.now() - Date.parse(text)) / 1000));
  return s < 60 ? s + " s ago" : s < 3600 ? Math.round(s / 60) + " min ago" : s < 172800 ? Math.round(s / 3600) + " h ago" : Math.round(s / 86400) + " days ago";
}

export function time(text) {
  return el("time", { datetime: text, title: moment(text) }, clock(text));
}

const owners = { caller: "the caller's", customer: "the customer's", provider: "the provider's", "third-party": "a third party's" };
export function owner(name) {
  return name ? el("span", { class: "owner " + name, title: "Whose it is: " + (owners[name] || name) }, name) :
    el("span", { class: "owner", title: "Sums of several pools do not tell: choose a pool" }, "per pool");
}

export function link(href, text, props) {
  return el("a", Object.assign({ href }, props), text);
}

export function short(id) {
  return id ? id.slice(0, 10) + (id.length > 10 ? "…" : "") : "–";
}

export function nodeLink(id) {
  return id ? link("#/node/" + encodeURIComponent(id), short(id), { title: id }) : "–";
}

export function runLink(id) {
  return id ? link("#/run/" + encodeURIComponent(id), short(id), { title: id }) : "–";
}

export function table(caption, heads, rows, props) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", props, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map((head) => (head instanceof Node ? head : el("th", { scope: "col", class: head.startsWith("#") ? "n" : "" }, head.replace(/^#/, "")))))),
      el("tbody", {}, rows)));
}

export function meter(used, total, label, text) {
  const share = total > 0 ? used / total : 0;
  return el("div", { class: "meter" },
    el("div", { class: "meter-label" }, el("span", {}, label), el("span", { class: "n", value: used }, text)),
    el("div", { class: "track", role: "img", "aria-label": label + " " + percent(share) },
      el("div", { class: "fill" + (share > 0.9 ? " hot" : ""), style: { width: Math.min(100, share * 100) + "%" } })));
}

export function empty(title, ...what) {
  return el("div", { class: "empty" }, el("h3", {}, title), what.map((text) => (text instanceof Node ? text : el("p", {}, text))));
}

export function card(props, label, big, ...small) {
  return el("section", Object.assign({ class: "card answer" }, props), el("h2", {}, label), el("div", { class: "big" }, big), small.map((text) =>
    text && el("p", {}, text)));
}

export function failureText(error) {
  return el("div", { class: "notice bad", role: "alert" }, el("strong", {}, error.code || "It did not work"), " ", error.message || String(error), error.owner ?
    [" ", owner(error.owner)] : null, error.remedy ? el("div", {}, error.remedy) : null);
}

// What is missing is said beside every figure that it touches.
export function gaps(answer, what) {
  const notes = [];
  if (answer.complete === false)
    notes.push("Not all of this time is held any more" + (answer.dropped ? ": " + count(answer.dropped) + " older records are gone" : "") + ". " + what);
  if (answer.gaps || answer.lost)
    notes.push(count((answer.gaps || 0) + (answer.lost || 0)) + " records of this node never arrived. " + what);
  return notes.map((text) => el("p", { class: "notice gap", role: "note" }, el("strong", {}, "Gap "), text));
}

export function select(id, label, options, chosen, onchange) {
  return el("label", { class: "field", for: id }, el("span", {}, label), el("select", { id, onchange: (event) => onchange(event.target.value) },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text))));
}

export function field(id, label, props) {
  return el("label", { class: "field", for: id }, el("span", {}, label), el("input", Object.assign({ id }, props)));
}

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
