// SPDX-License-Identifier: Apache-2.0
// All nodes: a heat map on one canvas, which ten thousand do not slow down, and the same as a list for the keyboard.

import { get, query } from "./api.js";
import * as answers from "./answers.js";
import { ago, card, color, count, el, empty, link, mib, percent, select, short, table } from "./ui.js";

const PAGE = 50;
const share = (used, total) => (total > 0 ? Math.min(1, used / total) : 0);
const metrics = {
  memory: ["Memory reserved", (node) => share(node.memory_reserved_mib, node.memory_mib)],
  vcpus: ["vCPUs reserved", (node) => share(node.vcpus_reserved, node.vcpus)],
  disk: ["Disk reserved", (node) => share(node.disk_reserved_mib, node.disk_mib)],
  sandboxes: ["Sandboxes", (node) => share(node.sandboxes, node.max_sandboxes)],
  failures: ["Starts that failed", (node) => share(node.failures, node.starts)],
};

// Why a node takes nothing; "" where it does.
export function trouble(node) {
  if (node.state !== "ready") return node.state;
  if (node.facts.length) return node.facts[0];
  if (node.unfit) return "unfit";
  return node.schedulable ? "" : "not ready yet";
}

function mix(from, to, x) {
  const parse = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  const a = parse(from), b = parse(to);
  return "rgb(" + a.map((v, i) => Math.round(v + (b[i] - v) * x)).join(",") + ")";
}

// Pool by pool; `cells` are {node, x, y} in CSS pixels.
function layout(nodes, width) {
  const size = nodes.length <= 60 ? 34 : nodes.length <= 400 ? 24 : nodes.length <= 2500 ? 14 : width < 500 ? 7 : 10;
  const columns = Math.max(1, Math.floor(width / size)), cells = [], pools = [];
  let y = 0;
  for (const pool of [...new Set(nodes.map((node) => node.pool))].sort()) {
    const list = nodes.filter((node) => node.pool === pool);
    pools.push({ pool, n: list.length, y });
    y += 22;
    list.forEach((node, i) => cells.push({ node, x: (i % columns) * size, y: y + Math.floor(i / columns) * size }));
    y += Math.ceil(list.length / columns) * size + 10;
  }
  return { size, columns, cells, pools, height: y };
}

function heatMap(state, ctx) {
  const canvas = el("canvas", { id: "heat", tabindex: "0", role: "application", "aria-label": "Heat map of nodes: arrow keys go from node to node, Enter opens one; the list below has the same" });
  const tip = el("div", { class: "tip", hidden: true }), said = el("div", { class: "skip", role: "status", "aria-live": "polite" }), place = el("div", { class: "map" }, canvas, tip, said);
  let map = null, at = -1;

  function draw() {
    const width = place.clientWidth || 320, ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    const low = color("--heat-0"), high = color("--heat-1"), value = metrics[state.metric][1];
    map = layout(state.shown, width);
    canvas.width = width * ratio;
    canvas.height = map.height * ratio;
    canvas.style.height = map.height + "px";
    pen.scale(ratio, ratio);
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillStyle = color("--soft");
    for (const pool of map.pools) pen.fillText(pool.pool + "  " + count(pool.n), 0, pool.y + 14);
    const shades = Array.from({ length: 21 }, (_, i) => mix(low, high, i / 20)), bad = color("--bad"), warn = color("--warn"), skip = color("--skip"), edge = map.size > 12 ? 2 : 1;
    for (const { node, x, y } of map.cells) {
      const what = trouble(node), inner = map.size - edge;
      pen.fillStyle = what === "lost" || what === "unfit" || what === "quarantined" ? bad : what === "joining" || what === "not ready yet" ? skip : what ? warn : shades[Math.round(value(node) * 20)];
      pen.fillRect(x, y, inner, inner);
      if (what && map.size >= 10) { // not by colour alone
        pen.strokeStyle = color("--card");
        pen.lineWidth = map.size > 20 ? 2 : 1;
        pen.beginPath();
        pen.moveTo(x + 3, y + 3);
        pen.lineTo(x + inner - 3, y + inner - 3);
        pen.stroke();
      }
    }
    if (at >= map.cells.length) at = -1;
    if (at >= 0) {
      pen.strokeStyle = color("--ink");
      pen.lineWidth = 2;
      pen.strokeRect(map.cells[at].x - 1, map.cells[at].y - 1, map.size, map.size);
    }
    canvas.dataset.cells = map.cells.length;
  }

  const text = (node) => node.hostname + ", " + (trouble(node) || "takes sandboxes") + "\n" + metrics[state.metric][0] + " " + percent(metrics[state.metric][1](node)) + ", " + node.sandboxes + " sandboxes";
  function show(i, isSaid) {
    at = i;
    draw();
    tip.hidden = i < 0;
    if (i < 0) return;
    tip.textContent = text(map.cells[i].node);
    tip.style.top = map.cells[i].y + map.size + 6 + "px";
    tip.style.left = Math.max(0, Math.min(map.cells[i].x, place.clientWidth - tip.offsetWidth - 4)) + "px";
    if (isSaid) said.textContent = tip.textContent;
  }
  function under(event) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    return map.cells.findIndex((cell) => x >= cell.x && x < cell.x + map.size && y >= cell.y && y < cell.y + map.size);
  }
  const go = (i) => { if (map.cells[i]) location.hash = "#/node/" + encodeURIComponent(map.cells[i].node.id); };
  canvas.addEventListener("mousemove", (event) => { const i = under(event); if (i !== at) show(i); });
  canvas.addEventListener("mouseleave", () => show(-1));
  canvas.addEventListener("click", (event) => go(under(event)));
  canvas.addEventListener("blur", () => show(-1));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -map.columns, ArrowDown: map.columns, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && at >= 0) go(at);
    if (step === undefined || !map.cells.length) return;
    event.preventDefault();
    show(at < 0 ? 0 : Math.max(0, Math.min(map.cells.length - 1, at + step)), true);
  });
  const watch = new ResizeObserver(() => draw());
  watch.observe(place);
  place.draw = draw;
  place.close = () => watch.disconnect();
  return place;
}

function list(state) {
  const found = state.shown.filter((node) => !state.search || [node.hostname, node.id, node.pool, trouble(node), node.unfit || ""].some((text) => text.includes(state.search)));
  const value = metrics[state.metric][1], pages = Math.max(1, Math.ceil(found.length / PAGE));
  state.page = Math.max(0, Math.min(state.page, pages - 1));
  found.sort((a, b) => (trouble(b) !== "") - (trouble(a) !== "") || value(b) - value(a) || (a.hostname < b.hostname ? -1 : 1));
  const rows = found.slice(state.page * PAGE, state.page * PAGE + PAGE).map((node) => el("tr", { "data-node": node.id }, el("th", { scope: "row" }, link("#/node/" + encodeURIComponent(node.id), node.hostname || short(node.id))),
    el("td", {}, node.pool), el("td", {}, el("span", { class: "tag " + (trouble(node) ? (["lost", "unfit", "quarantined"].includes(trouble(node)) ? "bad" : "warn") : "ok") }, trouble(node) || "takes sandboxes"), node.unfit ? [" ", el("code", {}, node.unfit)] : null),
    el("td", { class: "n", value: node.sandboxes }, count(node.sandboxes)), el("td", { class: "n", value: node.memory_reserved_mib }, percent(share(node.memory_reserved_mib, node.memory_mib)) + " of " + mib(node.memory_mib)),
    el("td", { class: "n", value: node.vcpus_reserved }, count(node.vcpus_reserved) + " of " + count(node.vcpus)), el("td", { class: "n", value: node.failures }, count(node.failures) + " of " + count(node.starts)), el("td", {}, node.version), el("td", {}, ago(node.heard))));
  const turn = (by) => () => { state.page += by; state.redraw(); };
  return [table("Nodes, those that take nothing first", ["Host", "Pool", "State", "#Sandboxes", "#Memory reserved", "#vCPUs reserved", "#Failed starts", "Version", "Heard"], rows, { id: "nodes" }),
    el("div", { class: "pages" }, el("button", { type: "button", id: "previous", disabled: state.page === 0, onclick: turn(-1) }, "Previous"), el("span", {}, count(found.length) + " nodes, page " + (state.page + 1) + " of " + pages),
      el("button", { type: "button", id: "next", disabled: state.page + 1 >= pages, onclick: turn(1) }, "Next"))];
}

export function show(main, ctx) {
  const state = { metric: "memory", search: "", page: 0, all: [], shown: [], trouble: false };
  const top = el("div", { class: "answers" }), listed = el("div"), none = el("div"), map = heatMap(state, ctx);
  const search = el("input", { id: "search", type: "search", placeholder: "host, id, pool, state", spellcheck: "false", oninput: (event) => { state.search = event.target.value.trim(); state.page = 0; listed.replaceChildren(...list(state)); } });
  const work = el("div", { class: "stack" }, el("section", { class: "card" }, el("h2", {}, "Heat map"), map, el("div", { class: "legend" }, el("span", {}, "0 %"), el("span", { class: "ramp", "aria-hidden": "true" }), el("span", {}, "100 %"),
    el("span", {}, el("i", { style: { background: "var(--warn)" } }), "silent, cordoned, draining"), el("span", {}, el("i", { style: { background: "var(--bad)" } }), "lost, unfit, quarantined"), el("span", {}, el("i", { style: { background: "var(--skip)" } }), "joining"))),
  el("section", { class: "card" }, el("h2", {}, "Nodes"), el("div", { class: "chips" }, el("label", { class: "field", for: "search" }, el("span", {}, "Search"), search)), listed));
  main.append(ctx.head("Fleet", select("metric", "Colour", Object.entries(metrics).map(([name, [text]]) => [name, text]), state.metric, (value) => { state.metric = value; state.redraw(); })), none, top, work);

  state.redraw = () => {
    const focused = document.activeElement && document.activeElement.id;
    state.shown = state.all;
    map.draw();
    listed.replaceChildren(...list(state));
    if (["previous", "next"].includes(focused)) document.getElementById(focused)?.focus({ preventScroll: true });
  };
  return {
    pace: 4000,
    async refresh() {
      const seen = new Map();
      let first = null, after = null;
      do { // page by page; one that moved meanwhile counts once
        const answer = await get("/v1/fleet" + query({ limit: 2000, after }));
        first = first || answer;
        for (const node of answer.nodes) seen.set(node.id, node);
        after = answer.next;
      } while (after);
      this.pace = seen.size > 2000 ? 15000 : 4000;
      state.all = [...seen.values()];
      ctx.age(first.as_of);
      none.replaceChildren(...(state.all.length ? [] : [el("section", { class: "card" }, empty("No node has joined yet", "Make a join token, and have it taken on a machine with KVM:", el("pre", { class: "mono" }, "croft token create --out token\ncroft-node join --token-file token")))]));
      work.hidden = state.all.length === 0;
      const sums = first.sums;
      top.replaceChildren(answers.nodes(first), card({ id: "s-sandboxes" }, "Sandboxes", el("span", { value: sums.sandboxes }, count(sums.sandboxes)), count(sums.starting) + " starting"),
        card({ id: "s-memory" }, "Memory reserved", el("span", { value: sums.memory_reserved_mib }, percent(share(sums.memory_reserved_mib, sums.memory_mib))), "of " + mib(sums.memory_mib)),
        card({ id: "s-vcpus" }, "vCPUs reserved", el("span", { value: sums.vcpus_reserved }, percent(share(sums.vcpus_reserved, sums.vcpus))), count(sums.vcpus_reserved) + " of " + count(sums.vcpus) + ", overcommit included"));
      if (state.all.length) state.redraw();
    },
    close: () => map.close(),
  };
}
