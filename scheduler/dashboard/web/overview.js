// SPDX-License-Identifier: Apache-2.0
// The first page: the answers, how they came about, and what failed last.

import { get, query } from "./api.js";
import * as answers from "./answers.js";
import { feedRows } from "./failures.js";
import { count, el, empty, gaps, link, owner, percent, select, table } from "./ui.js";
import { plot } from "./plot.js";

export function ownerBars(owners) {
  const list = Object.entries(owners), most = Math.max(1, ...list.map(([, n]) => n.failed));
  return el("div", { class: "owners" }, list.map(([name, n]) => el("div", { class: "row" }, owner(name),
    el("div", { class: "bar owner-bar", role: "img", "aria-label": name + ": " + n.failed + " failures" }, el("i", { class: "owner-fill " + name, style: { width: (n.failed / most) * 100 + "%", background: "var(--o-" + (name === "third-party" ? "third" : name) + ")" } })),
    el("span", { class: "n", value: n.failed, id: "by-" + name }, count(n.failed)))));
}

export function history(place, answer) {
  const points = answer.points;
  if (place.firstChild && place.firstChild.close) place.firstChild.close();
  if (!points.some((point) => point.product !== null)) {
    place.replaceChildren(el("p", { class: "sub" }, "No start in this time."));
    return;
  }
  const lows = points.map((point) => point.low).filter((x) => x !== null);
  place.replaceChildren(plot("Share of starts that succeed, over time; the lowest " + percent(Math.min(...points.map((point) => point.product ?? 1))), points.map((point) => Date.parse(point.at) / 1000), [
    { label: "high", values: points.map((point) => point.high), color: "--line", width: 0.5, band: "--band" },
    { label: "low", values: points.map((point) => point.low), color: "--line", width: 0.5 },
    { label: "starts that succeed", values: points.map((point) => point.product), color: "--accent", points: points.filter((point) => point.product !== null).length < 40 },
  ], { format: (v) => (v * 100).toFixed(v > 0.99 && v < 1 ? 1 : 0) + " %", min: () => Math.max(0, Math.floor(Math.min(...lows) * 10) / 10), max: () => 1 }));
}

function nothing(ctx) {
  return empty("No node has joined yet", ctx.who.role === "provider-operator" || ctx.who.role === "customer-operator" ?
    "Make a join token, and have it taken on a machine with KVM:" : "An operator makes a join token, and has it taken on a machine with KVM:",
  el("pre", { class: "mono" }, "croft token create --out token\ncroft-node join --token-file token\nsystemctl start croft-node"), "This page shows it as soon as it is there.");
}

export function show(main, ctx) {
  const top = el("div", { class: "answers", id: "answers" }), note = el("div"), time = el("div", { class: "place" }), whose = el("div"), last = el("div"), none = el("div");
  const plots = el("section", { class: "card" }, el("h2", {}, "Starts that succeed, over time"), time);
  const window = select("window", "Time", answers.windows, ctx.window, (value) => { ctx.window = value; page.refresh().catch(() => {}); });
  const work = el("div", { class: "stack" }, plots, el("div", { class: "two" },
    el("section", { class: "card" }, el("h2", {}, "Failed last"), last, el("p", { class: "sub" }, link("#/failures", "All failures"))),
    el("section", { class: "card" }, el("h2", {}, "Whose failures"), whose)));
  main.append(ctx.head("Overview", window), note, none, top, work);

  const page = {
    pace: 3000,
    async refresh() {
      const scope = ctx.scope, w = ctx.window;
      const [stages, past, failed, capacity, fleet] = await Promise.all([get("/v1/stages" + query({ window: w, scope })), get("/v1/stages/history" + query({ window: w, scope })),
        get("/v1/failures" + query({ window: w === "30d" ? "24h" : w, scope, limit: 6 })), ctx.canWatch ? get("/v1/capacity") : null,
        ctx.canWatch ? get("/v1/fleet?limit=0") : null]);
      const isEmpty = fleet && fleet.sums.nodes === 0;
      ctx.age(stages.as_of);
      note.replaceChildren(...gaps(stages, "The figures are of what is left."), ...gaps(failed, "Failures by owner lack the older ones."));
      none.replaceChildren(...(isEmpty ? [el("section", { class: "card" }, nothing(ctx))] : []));
      work.hidden = isEmpty && stages.product === null && failed.failures.length === 0;
      top.replaceChildren(...[answers.product(stages), answers.weakest(stages), capacity && answers.fits(capacity), capacity && answers.runsOut(capacity),
        fleet && answers.nodes(fleet)].filter(Boolean));
      history(time, past);
      whose.replaceChildren(ownerBars(failed.owners));
      last.replaceChildren(failed.failures.length ? table("The last failures", ["When", "Stage", "Code", "Whose", "Run"], feedRows(failed.failures, true)) :
        el("p", { class: "sub" }, "Nothing failed in this time."));
    },
    close() { time.firstChild?.close?.(); },
  };
  return page;
}
