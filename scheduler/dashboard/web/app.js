// SPDX-License-Identifier: Apache-2.0
// The frame: log in, pages by the address behind #, what is live.

import { Failure, get, keptKey, listen, setKey } from "./api.js";
import { ago, clock, el, failureText } from "./ui.js";
import * as overview from "./overview.js";
import * as stages from "./stages.js";
import * as fleet from "./fleet.js";
import * as node from "./node.js";
import * as runs from "./runs.js";
import * as capacity from "./capacity.js";
import * as failures from "./failures.js";

// In the order of the menu; `watch`: for operators and planners alone, as the API has it.
const pages = [
  { path: "", name: "Overview", page: overview },
  { path: "stages", name: "Stages", page: stages },
  { path: "failures", name: "Failures", page: failures },
  { path: "fleet", name: "Fleet", page: fleet, watch: true },
  { path: "capacity", name: "Capacity", page: capacity, watch: true },
  { path: "run", name: "Runs", page: runs },
  { path: "node", name: "Node", page: node, watch: true, inMenu: false },
];
const main = document.getElementById("main");
const live = document.getElementById("live");
let who = null, open = null, quit = null, again = null;

export const ctx = {
  canWatch: false, scope: "", window: "24h",
  // What an answer says of its age, in the page's head.
  age(text) {
    const place = main.querySelector(".age");
    if (!place || !text) return;
    place.dataset.at = text;
    place.dataset.value = text;
    place.textContent = "as of " + clock(text) + ", " + ago(text);
  },
  head(title, ...tools) {
    document.title = title + " · croft";
    return el("div", { class: "head" }, el("h1", {}, title, el("span", { class: "age" }, "asking…")), el("div", { class: "tools" }, tools));
  },
};

setInterval(() => {
  const place = main.querySelector(".age[data-at]");
  if (place) place.textContent = "as of " + clock(place.dataset.at) + ", " + ago(place.dataset.at);
}, 1000);

function close() {
  if (open && open.close) open.close();
  open = null;
  clearTimeout(again);
  again = null;
}

function problem(error) {
  if (error.name === "AbortError") return;
  if (error.status === 401) return leave("The key is not valid any more.");
  const old = main.querySelector(":scope > .notice.bad");
  if (old) old.remove();
  const head = main.querySelector(".head");
  if (head) head.after(failureText(error));
  else main.append(failureText(error));
}

async function refresh() {
  const shown = open;
  if (!shown || !shown.refresh || shown.busy) return;
  shown.busy = true;
  try {
    await shown.refresh();
    if (shown === open) main.querySelector(":scope > .notice.bad")?.remove();
  } catch (error) {
    if (shown === open) problem(error);
  }
  shown.busy = false;
}

// What changed is asked for again, no oftener than the page can bear.
function soon() {
  if (again || !open) return;
  again = setTimeout(() => {
    again = null;
    if (!document.hidden) refresh();
  }, open.pace || 1000);
}

async function go() {
  const [, name = "", arg = ""] = location.hash.match(/^#\/([a-z]*)\/?(.*)$/) || [];
  let chosen = pages.find((one) => one.path === name && (!one.watch || ctx.canWatch));
  if (location.hash === "#main" || !who) return;
  close();
  chosen = chosen || pages[0];
  for (const a of document.querySelectorAll("nav a")) {
    if (a.dataset.path === chosen.path) {
      a.setAttribute("aria-current", "page");
      a.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    else a.removeAttribute("aria-current");
  }
  main.replaceChildren();
  try {
    open = chosen.page.show(main, ctx, decodeURIComponent(arg));
  } catch (error) {
    problem(error);
  }
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  await refresh();
  document.body.dataset.shown = location.hash || "#/";
}

function state(name) {
  live.dataset.state = name;
  live.textContent = { live: "live", waiting: "connecting…", refused: "not allowed" }[name];
}

function start() {
  const nav = document.getElementById("nav");
  document.getElementById("top").hidden = false;
  nav.replaceChildren(...pages.filter((one) => one.inMenu !== false && (!one.watch || ctx.canWatch)).map((one) =>
    el("a", { href: "#/" + one.path, "data-path": one.path }, one.name)));
  state("waiting");
  quit = listen({
    state,
    hello: (data) => { if (data.missed !== 0) soon(); },
    changed: soon,
    failure: (data) => { if (open && open.failure) open.failure(data); },
  }, ctx.scope);
  go();
}

async function enter(key, isKept) {
  setKey(key, false);
  who = await get("/v1/whoami");
  setKey(key, isKept);
  ctx.who = who;
  ctx.canWatch = who.role !== "tenant";
  ctx.scope = ctx.canWatch ? "all" : "";
  start();
}

function leave(why) {
  close();
  if (quit) quit();
  quit = who = null;
  setKey(null);
  history.replaceState(null, "", "#/"); // whoever logs in next begins at the beginning
  document.getElementById("top").hidden = true;
  login(why);
}

function login(why) {
  const key = el("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", autocapitalize: "off", required: true, placeholder: "croft_…" });
  const keep = el("input", { id: "keep", type: "checkbox" });
  const said = el("div", { role: "alert" }, why ? el("p", { class: "notice bad" }, why) : "");
  const submit = async (event) => {
    event.preventDefault();
    try {
      await enter(key.value.trim(), keep.checked);
    } catch (error) {
      setKey(null);
      said.replaceChildren(failureText(error instanceof Failure ? error : { message: String(error) }));
      key.focus();
    }
  };
  document.title = "Log in · croft";
  document.body.dataset.shown = "login";
  // A form that is sent by mistake goes nowhere: the field has no name, and the page's policy forbids it.
  main.replaceChildren(el("section", { class: "card login" }, el("h1", {}, el("img", { src: "icon.svg", alt: "", width: 32, height: 32 }), "croft"),
    el("p", {}, "Where runs fail, whose fault it is, and how much more fits."),
    el("form", { method: "post", onsubmit: submit }, el("label", { class: "field", for: "key" }, el("span", {}, "API key"), key),
      el("label", { class: "check", for: "keep" }, keep, "Keep it until this tab is closed"), said, el("button", { class: "main", type: "submit" }, "Log in")),
    el("p", {}, "A planner's key sees everything that its operator sees, and changes nothing: the right one for this page."),
    el("p", { class: "mono" }, "croft key create --role customer-planner")));
  key.focus();
}

const dark = matchMedia("(prefers-color-scheme: dark)");
function theme(name) {
  document.documentElement.dataset.theme = name || (dark.matches ? "dark" : "light");
  if (who) go();
}
document.getElementById("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
document.getElementById("leave").addEventListener("click", () => leave());
dark.addEventListener("change", () => theme());
window.addEventListener("hashchange", go);
document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });
theme();
if (keptKey()) enter(keptKey(), true).catch(() => login("The key that this tab kept is not valid any more."));
else login();
