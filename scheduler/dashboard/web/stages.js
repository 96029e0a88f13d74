// SPDX-License-Identifier: Apache-2.0
// The waterfall: what each stage leaves of all starts, why it loses some, and what another rate would give.

import { get, query } from "./api.js";
import * as answers from "./answers.js";
import { history } from "./overview.js";
import { count, el, empty, field, gaps, millis, nodeLink, owner, percent, runLink, select, table } from "./ui.js";
import { download } from "./csv.js";

// Where the axis begins: a little below what is left in the end.
function axisFrom(product) {
  return product >= 0.9 ? 0.85 : Math.max(0, Math.floor(product * 10 - 1) / 10);
}

function codesOf(stage) {
  if (!stage.codes.length) return el("p", {}, stage.attempts ? "No attempt failed." : stage.skipped ? "Skipped each time." : "No attempt.");
  return table("Why " + stage.stage + " failed", ["Code", "#Times", "Component", "Whose", "Last run", "Node", "What to do"], stage.codes.map((code) => el("tr", {},
    el("td", {}, el("code", {}, code.code)), el("td", { class: "n", value: code.n }, count(code.n)), el("td", {}, code.component), el("td", {}, owner(code.owner)),
    el("td", {}, runLink(code.sandbox || code.trace)), el("td", {}, nodeLink(code.node)), el("td", { class: "wrap" }, code.remedy))));
}

function bar(before, after, from) {
  const width = (x) => Math.max(0, (x - from) / (1 - from)) * 100 + "%";
  return el("div", { class: "bar", "aria-hidden": "true" }, el("i", { class: "kept", style: { width: width(after) } }),
    before > after ? el("i", { class: "loss", style: { width: Math.max(0, (before - Math.max(after, from)) / (1 - from)) * 100 + "%" } }) : null);
}

function rows(stage, cells, open) {
  const isOpen = open.has(stage.stage);
  const toggle = el("button", { type: "button", class: "quiet", "aria-expanded": String(isOpen), "aria-controls": "why-" + stage.stage, title: stage.what }, stage.stage);
  const more = el("tr", { class: "more", id: "why-" + stage.stage, hidden: !isOpen }, el("td", { colspan: String(cells.length + 1) }, codesOf(stage)));
  toggle.addEventListener("click", () => {
    if (open.delete(stage.stage)) more.hidden = true;
    else {
      open.add(stage.stage);
      more.hidden = false;
    }
    toggle.setAttribute("aria-expanded", String(!more.hidden));
  });
  return [cells, more, toggle];
}

function numbers(stage) {
  return [el("td", { class: "n", value: stage.success === null ? "" : stage.success, title: stage.success === null ? "" : "95 % sure: " + percent(stage.low) + " to " + percent(stage.high) }, stage.success === null && stage.skipped ? "skipped" : percent(stage.success)),
    el("td", { class: "n", value: stage.attempts }, count(stage.attempts)), el("td", { class: "n", value: stage.failed }, count(stage.failed)),
    el("td", { class: "n", value: stage.saved }, count(stage.saved)), el("td", { class: "n", value: stage.p50_ms }, stage.attempts ? millis(stage.p50_ms) : "–"),
    el("td", { class: "n", value: stage.p95_ms }, stage.attempts ? millis(stage.p95_ms) : "–"), el("td", { class: "n", value: stage.p99_ms }, stage.attempts ? millis(stage.p99_ms) : "–")];
}

function waterfall(answer, open) {
  const from = axisFrom(answer.product === null ? 1 : answer.product);
  let left = 1;
  const body = answer.stages.filter(answers.isOfStart).flatMap((stage) => {
    const before = left, own = numbers(stage);
    left *= stage.success === null ? 1 : stage.success;
    const [cells, more, toggle] = rows(stage, [own[0], el("td", { class: "bars" }, bar(before, left, from)), el("td", { class: "n left", value: left }, percent(left)), ...own.slice(1)], open);
    return [el("tr", { class: stage.stage === answer.weakest ? "weakest" : "", "data-stage": stage.stage }, el("th", { scope: "row" }, toggle), cells), more];
  });
  const axis = el("th", { scope: "col", class: "bars" }, "Left of all starts", el("div", { class: "axis", "aria-hidden": "true" }, el("span", {}, percent(from)), el("span", {}, "100 %")));
  return table("Stages of a start, in their order", ["Stage", "#Succeed", axis, "#Left", "#Attempts", "#Failed", "#Saved", "#p50", "#p95", "#p99"], body, { id: "waterfall" });
}

function life(answer, open) {
  const list = answer.stages.filter((stage) => !answers.isOfStart(stage));
  return list.length ? table("Stages while a sandbox lives", ["Stage", "#Succeed", "#Attempts", "#Failed", "#Saved", "#p50", "#p95", "#p99"], list.flatMap((stage) => {
    const [cells, more, toggle] = rows(stage, numbers(stage), open);
    return [el("tr", { "data-stage": stage.stage }, el("th", { scope: "row" }, toggle), cells), more];
  }), { id: "life" }) : el("p", { class: "sub" }, "Nothing was asked of a running sandbox in this time.");
}

export function show(main, ctx) {
  const open = new Set(), filter = {};
  let latest = null;
  const again = () => page.refresh().catch(() => {});
  const note = el("div"), top = el("div", { class: "answers" }), fall = el("div"), lives = el("div"), past = el("div"), said = el("output", { id: "what-if", for: "if-stage if-success" });
  const set = (name) => ({ onchange: (event) => { filter[name] = event.target.value.trim(); again(); }, type: "text", size: "10", spellcheck: "false", placeholder: "all" });
  const ifStage = el("select", { id: "if-stage", onchange: () => ask() }), ifSuccess = el("input", { id: "if-success", type: "number", min: "0", max: "100", step: "any", value: "99.9", onchange: () => ask() });

  async function ask() {
    const success = Number(ifSuccess.value) / 100;
    if (!ifStage.value || !(success >= 0 && success <= 1)) return;
    const answer = await get("/v1/stages" + query({ window: ctx.window, scope: ctx.scope, ...filter, what_if: ifStage.value + ":" + success })).catch(() => null);
    if (answer) said.replaceChildren(el("strong", { value: answer.what_if.product }, percent(answer.what_if.product)), " of starts would succeed, instead of " + percent(answer.product));
  }

  main.append(ctx.head("Stages", select("window", "Time", answers.windows, ctx.window, (value) => { ctx.window = value; again(); }), field("f-pool", "Pool", set("pool")),
    field("f-template", "Template", set("template")), ctx.canWatch ? [field("f-tenant", "Tenant", set("tenant")), field("f-node", "Node", set("node"))] : null,
    el("button", { type: "button", onclick: () => latest && download("stages.csv", latest.stages, ["stage", "attempts", "ok", "failed", "saved", "skipped", "success", "low", "high", "p50_ms", "p90_ms", "p95_ms", "p99_ms"],
      { product: latest.product, from: latest.from, as_of: latest.as_of, complete: latest.complete, dropped: latest.dropped }) }, "CSV")), note, top,
  el("div", { class: "stack" }, el("section", { class: "card" }, el("h2", {}, "What each stage leaves of all starts"), fall),
    el("section", { class: "card" }, el("h2", {}, "What if"), el("div", { class: "tools" }, el("label", { class: "field", for: "if-stage" }, el("span", {}, "This stage"), ifStage),
      el("label", { class: "field", for: "if-success" }, el("span", {}, "succeeded at, in %"), ifSuccess)), el("p", {}, said)),
    el("section", { class: "card" }, el("h2", {}, "Over time"), past), el("section", { class: "card" }, el("h2", {}, "While sandboxes live"), lives)));

  const page = {
    pace: 3000,
    async refresh() {
      const asked = { window: ctx.window, scope: ctx.scope, ...filter };
      const [answer, times] = await Promise.all([get("/v1/stages" + query(asked)), get("/v1/stages/history" + query(asked)).catch(() => null)]);
      const weakest = answer.weakest && answers.stageOf(answer, answer.weakest), focused = document.activeElement?.getAttribute("aria-controls");
      latest = answer;
      ctx.age(answer.as_of);
      note.replaceChildren(...gaps(answer, "The figures are of what is left."));
      top.replaceChildren(answers.product(answer), answers.weakest(answer), ...(weakest && weakest.codes[0] ? [el("section", { class: "card answer", id: "a-remedy" }, el("h2", {}, "What to do about it"),
        el("p", {}, weakest.codes[0].remedy), el("p", {}, "Last seen: ", runLink(weakest.codes[0].sandbox || weakest.codes[0].trace)))] : []));
      fall.replaceChildren(answer.product === null ? empty("No start in this time", "Choose a longer time, or start a sandbox:", el("pre", { class: "mono" }, "croft sandbox create base")) : waterfall(answer, open));
      lives.replaceChildren(life(answer, open));
      if (times) history(past, times);
      else past.replaceChildren(el("p", { class: "sub" }, "Sums over time are kept by pool, by work and by node alone, not for this choice."));
      if (!ifStage.options.length) {
        ifStage.replaceChildren(...answer.stages.filter(answers.isOfStart).map((stage) => el("option", { value: stage.stage, selected: stage.stage === (answer.weakest || "vmm") }, stage.stage)));
      }
      if (answer.product !== null) await ask();
      if (focused) fall.querySelector('[aria-controls="' + focused + '"]')?.focus({ preventScroll: true });
    },
    close() { past.firstChild?.close?.(); },
  };
  return page;
}
