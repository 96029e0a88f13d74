// SPDX-License-Identifier: Apache-2.0
// What fails, as it fails, by whose it is.

import { get, query } from "./api.js";
import * as answers from "./answers.js";
import { card, count, el, empty, gaps, nodeLink, owner, runLink, select, table, time } from "./ui.js";

const SHOWN = 200;

function row(failure, isShort) {
  const tags = [failure.saved ? [" ", el("span", { class: "tag warn", title: "A later attempt was ready: no caller saw it" }, "saved")] : null, failure.n > 1 ? " ×" + count(failure.n) : ""];
  return el("tr", { "data-trace": failure.trace, "data-code": failure.code },
    el("td", {}, time(failure.when)), el("td", { class: "key" }, failure.stage), el("td", { class: isShort ? "" : "wrap" }, el("code", { title: failure.remedy }, failure.code), tags, isShort ? null : el("div", { class: "sub" }, failure.remedy)),
    el("td", {}, owner(failure.owner), isShort ? null : el("div", { class: "sub" }, failure.component)), el("td", {}, runLink(failure.sandbox || failure.trace)),
    isShort ? null : [el("td", {}, nodeLink(failure.node)), el("td", {}, failure.pool || "–"), el("td", {}, failure.tenant || "–")]);
}

export function feedRows(list, isShort) {
  return list.map((failure) => row(failure, isShort));
}

export function show(main, ctx, arg) {
  let chosen = arg, list = [];
  const note = el("div"), top = el("div", { class: "answers" }), chips = el("div", { class: "chips", role: "group", "aria-label": "Whose" }), feed = el("div");
  const shown = () => list.filter((failure) => !chosen || failure.owner === chosen);
  const window = select("window", "Time", answers.windows.filter(([value]) => value !== "30d"), ctx.window === "30d" ? "24h" : ctx.window, (value) => {
    ctx.window = value;
    page.refresh().catch(() => {});
  });
  main.append(ctx.head("Failures", window), note, top, el("section", { class: "card" }, chips, feed));

  function draw() {
    const rows = feedRows(shown());
    feed.replaceChildren(rows.length ? table("Failures, the latest first", ["When", "Stage", "Code, and what to do", "Whose", "Run", "Node", "Pool", "Tenant"], rows, { id: "feed" }) :
      empty(chosen ? "Nothing of this owner" : "Nothing failed", "Failures appear here as they happen."));
  }

  const page = {
    pace: 4000,
    async refresh() {
      const answer = await get("/v1/failures" + query({ window: ctx.window === "30d" ? "24h" : ctx.window, scope: ctx.scope, limit: SHOWN, owner: chosen }));
      const all = Object.values(answer.owners).reduce((sum, one) => sum + one.failed, 0), saved = Object.values(answer.owners).reduce((sum, one) => sum + one.saved, 0);
      const most = Object.entries(answer.owners).sort((a, b) => b[1].failed - a[1].failed)[0];
      list = answer.failures;
      ctx.age(answer.as_of);
      note.replaceChildren(...gaps(answer, "Older failures are missing here."));
      top.replaceChildren(card({ id: "f-all", class: "card answer lead" }, "Failures that callers saw", el("span", { value: all }, count(all)), "in " + answers.windows.find(([value]) =>
        value === (ctx.window === "30d" ? "24h" : ctx.window))[1]),
      card({ id: "f-most" }, "Mostly", all ? el("span", { value: most[0], class: "text" }, most[0]) : "–", all ? count(most[1].failed) + " of them" : null),
      card({ id: "f-saved" }, "Saved by a retry", el("span", { value: saved }, count(saved)), "no caller saw these"));
      chips.replaceChildren(...[["", "All", all], ...Object.entries(answer.owners).map(([name, n]) => [name, name, n.failed])].map(([name, text, n]) =>
        el("button", { type: "button", "aria-pressed": String(chosen === name), "data-owner": name, onclick: () => { chosen = name; page.refresh().catch(() => {}); } }, text + " ", el("span", { value: n }, count(n)))));
      draw();
    },
    // As it happens, before the sums are asked for again.
    failure(failure) {
      list = [failure, ...list.filter((one) => one.trace !== failure.trace || one.stage !== failure.stage || one.when !== failure.when)].slice(0, SHOWN);
      draw();
      feed.querySelector("tbody tr")?.classList.add("fresh");
    },
  };
  return page;
}
