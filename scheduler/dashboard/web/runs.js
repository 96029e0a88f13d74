// SPDX-License-Identifier: Apache-2.0
// One run end to end: what each process did for a sandbox, and when. Without one, those that live.

import { get, query } from "./api.js";
import { ago, card, count, el, empty, gaps, millis, moment, nodeLink, owner, runLink, short, table } from "./ui.js";

function find() {
  const id = el("input", { id: "find", type: "text", placeholder: "sandbox id or trace id", spellcheck: "false", autocapitalize: "off", size: "24" });
  return el("form", { class: "tools", role: "search", onsubmit: (event) => {
    event.preventDefault();
    if (id.value.trim()) location.hash = "#/run/" + encodeURIComponent(id.value.trim());
  } }, el("label", { class: "field", for: "find" }, el("span", {}, "Find a run"), id), el("button", { type: "submit" }, "Show"));
}

function showList(main, ctx) {
  const place = el("div");
  main.append(ctx.head("Runs", find()), el("section", { class: "card" }, el("h2", {}, "Sandboxes that live"), place));
  return {
    pace: 4000,
    async refresh() {
      const list = await get("/v1/sandboxes" + query({ scope: ctx.scope, limit: 100 }));
      const oldest = list.map((one) => one.as_of).filter(Boolean).sort()[0];
      ctx.age(oldest || new Date().toISOString());
      place.replaceChildren(list.length ? table("Sandboxes that live, 100 at most", ["Sandbox", "State", "Template", "Tenant", "Pool", "Node", "#vCPU", "#Memory", "Created"], list.map((one) => el("tr", {}, el("th", { scope: "row" }, runLink(one.id)),
        el("td", {}, el("span", { class: "tag " + (one.state === "running" ? "ok" : "warn") }, one.state), one.certain ? null : [" ", el("span", { class: "tag warn", title: "Its node is silent: this is what was known last" }, "not certain")]), el("td", {}, one.template), el("td", {}, one.tenant), el("td", {}, one.pool), el("td", {}, nodeLink(one.node)),
        el("td", { class: "n" }, count(one.vcpus)), el("td", { class: "n" }, count(one.memory_mib) + " MiB"), el("td", {}, ago(one.created)))), { id: "sandboxes" }) :
        empty("No sandbox lives", "Start one, or look for one that ended by its id:", el("pre", { class: "mono" }, "croft sandbox create base")));
    },
  };
}

function row(step, whole) {
  const left = (step.at_us / whole) * 100, width = (step.took_us / whole) * 100;
  return el("tr", { "data-stage": step.stage }, el("td", { class: "lane" }, step.process), el("th", { scope: "row" }, step.stage, step.attempt > 1 ? el("span", { class: "sub" }, " attempt " + step.attempt) : null),
    el("td", { class: "bars" }, el("div", { class: "time", "aria-hidden": "true" }, el("i", { class: step.outcome, style: { left: Math.min(left, 99.5) + "%", width: Math.min(width, 100 - left) + "%" } }))),
    el("td", { class: "n", value: step.at_us }, "+" + millis(step.at_us / 1000)), el("td", { class: "n", value: step.took_us }, step.outcome === "skipped" ? "–" : millis(step.took_us / 1000)),
    el("td", {}, el("span", { class: "tag " + (step.outcome === "failed" ? "bad" : step.outcome === "ok" ? "ok" : "") }, step.outcome), step.reason ? el("span", { class: "sub" }, " " + step.reason) : null),
    el("td", {}, step.failure ? [el("code", { title: step.failure.remedy }, step.failure.code), " ", owner(step.failure.owner)] : "–"));
}

// The start is short and a life is long: of a long run, the start alone can be looked at.
function startEnd(steps) {
  const ready = steps.filter((step) => ["ready", "setup", "guest"].includes(step.stage)).pop();
  return ready ? ready.at_us + ready.took_us : 0;
}

export function show(main, ctx, id) {
  if (!id) return showList(main, ctx);
  let only = null;
  const note = el("div"), top = el("div", { class: "answers" }), line = el("div"), failed = el("div"), choose = el("div", { class: "chips", role: "group", "aria-label": "Part" });
  main.append(ctx.head("Run " + short(id), find()), note, top, failed, el("section", { class: "card" }, el("h2", {}, "Who did what, and when"), choose, line));
  const page = {
    pace: 3000,
    async refresh() {
      const run = await get("/v1/traces/" + encodeURIComponent(id));
      const sandbox = run.sandbox ? await get("/v1/sandboxes/" + encodeURIComponent(run.sandbox)).catch(() => null) : null;
      const end = startEnd(run.steps), isLong = end > 0 && run.took_us > end * 3;
      if (only === null) only = isLong;
      const steps = only && end ? run.steps.filter((step) => step.at_us <= end) : run.steps, whole = Math.max(1, only && end ? end : run.took_us);
      const bad = run.steps.filter((step) => step.failure).pop(), slow = steps.filter((step) => step.outcome === "ok").sort((a, b) => b.took_us - a.took_us)[0];
      ctx.age(run.as_of);
      note.replaceChildren(...gaps(run, "Steps of this run may be missing."), ...(run.more ? [el("p", { class: "notice gap" }, "Later steps are left out: there are too many.")] : []));
      top.replaceChildren(card({ id: "r-state", class: "card answer lead" + (bad && (!sandbox || sandbox.state === "ended") ? " poor" : "") }, "State", el("span", { class: "text", value: sandbox ? sandbox.state : "" }, sandbox ? sandbox.state : "not known"), sandbox ? sandbox.template + ", " + sandbox.vcpus + " vCPU, " + sandbox.memory_mib + " MiB" : null, sandbox && !sandbox.certain ? "Its node is silent: this is what was known last." : null),
        card({ id: "r-took" }, only ? "Start took" : "All took", el("span", { value: only ? end : run.took_us }, millis((only ? end : run.took_us) / 1000)), "from " + moment(run.began)),
        card({ id: "r-slow" }, "Longest step", slow ? el("span", { class: "text", value: slow.stage }, slow.stage) : "–", slow ? millis(slow.took_us / 1000) + " in " + slow.process : null),
        card({ id: "r-node" }, "Node", sandbox && sandbox.node ? el("span", { class: "id" }, ctx.canWatch ? nodeLink(sandbox.node) : short(sandbox.node)) : "–", sandbox ? count(sandbox.attempts) + (sandbox.attempts === 1 ? " attempt" : " attempts") : null));
      failed.replaceChildren(...(sandbox && sandbox.failure ? [el("p", { class: "notice bad", id: "r-failure" }, el("strong", {}, sandbox.failure.stage + ": " + sandbox.failure.code), " ", owner(sandbox.failure.owner), " ", sandbox.failure.message || sandbox.failure.detail || "", el("br"), sandbox.failure.remedy)] : []));
      choose.hidden = !isLong;
      choose.replaceChildren(...[[true, "The start"], [false, "All of it"]].map(([value, text]) => el("button", { type: "button", "aria-pressed": String(only === value), onclick: () => { only = value; page.refresh().catch(() => {}); } }, text)));
      line.replaceChildren(table("Steps in the order in which they began", ["Process", "Stage", el("th", { scope: "col", class: "bars" }, el("div", { class: "axis" }, el("span", {}, "0"), el("span", {}, millis(whole / 1000)))), "#At", "#Took", "Outcome", "Failure"], steps.map((step) => row(step, whole)), { id: "timeline" }),
        el("p", { class: "sub" }, "Each time is by the clock of the process that tells it. Trace ", el("code", {}, run.trace || "none"), "."));
    },
  };
  return page;
}
