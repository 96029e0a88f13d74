// SPDX-License-Identifier: Apache-2.0
// The answers that a planner and an operator ask for first, from what the API says; each page begins with those of its matter.

import { card, count, day, el, owner, percent } from "./ui.js";

export const windows = [["5m", "5 minutes"], ["1h", "1 hour"], ["24h", "24 hours"], ["30d", "30 days"]];

export function stageOf(answer, name) {
  return answer.stages.find((stage) => stage.stage === name);
}

export function isOfStart(stage) {
  return ["admit", "place", "dispatch", "accept", "image", "disk", "network", "jail", "vmm", "kernel", "guest", "setup", "ready"].includes(stage.stage);
}

export function product(answer) {
  const starts = stageOf(answer, "admit");
  const known = answer.product !== null;
  const tone = !known ? "" : answer.product >= 0.99 ? " good" : answer.product < 0.95 ? " poor" : "";
  return card({ class: "card answer lead" + tone, id: "a-product" }, "Starts that succeed", el("span", { value: answer.product }, percent(answer.product)),
    known ? "95 % sure: " + percent(answer.product_low) + " to " + percent(answer.product_high) : "Nothing was started in this time.",
    known && starts ? count(starts.attempts) + " attempts" + (starts.saved ? ", " + count(starts.saved) + " failures saved by a retry" : "") : null);
}

export function weakest(answer) {
  const stage = answer.weakest && stageOf(answer, answer.weakest);
  if (!stage)
    return card({ id: "a-weakest" }, "Weakest stage", el("span", { value: "", class: "none" }, answer.product === null ? "–" : "none"),
      answer.product === null ? null : "No start failed.");
  const code = stage.codes[0];
  return card({ id: "a-weakest" }, "Weakest stage", el("span", { value: stage.stage }, stage.stage),
    el("span", {}, percent(stage.success) + " of its attempts succeed "), code ? el("span", { class: "whose" }, owner(code.owner), " ", el("code", {}, code.code)) : null);
}

// Of pools that run out, the first; else what is known.
export function firstOut(answer) {
  return answer.pools.filter((pool) => pool.forecast.verdict === "grows" && pool.forecast.runs_out).sort((a, b) =>
    (a.forecast.runs_out < b.forecast.runs_out ? -1 : 1))[0];
}

export function shapeText(shape) {
  return shape.vcpus + " vCPU, " + count(shape.memory_mib / 1024) + " GiB";
}

export function fits(answer) {
  const n = answer.pools.reduce((sum, pool) => sum + pool.fits, 0);
  const waiting = answer.pools.reduce((sum, pool) => sum + pool.waiting, 0);
  return card({ id: "a-fits", class: "card answer" + (answer.pools.length && n === 0 ? " poor" : "") }, "Fit now", el("span", { value: n }, count(n)), "more sandboxes of " +
    shapeText(answer.shape), waiting ? count(waiting) + " more when starts under way are over" : null);
}

export function between(forecast) {
  const first = day(forecast.earliest), last = forecast.latest ? day(forecast.latest) : "no end";
  return first === last ? first : first + " to " + last;
}

export function runsOut(answer) {
  const pool = firstOut(answer);
  const short = answer.pools.length > 0 && answer.pools.every((one) => one.forecast.verdict === "too_short");
  if (!pool)
    return card({ id: "a-out" }, "Runs out", el("span", { value: "", class: "text" }, short ? "not known" : answer.pools.length ? "no trend" : "–"),
      short ? "Forecasts need 7 days of use." : answer.pools.length ? "No pool grows towards its limit." : null);
  const days = Math.max(0, Math.round((Date.parse(pool.forecast.runs_out) - Date.now()) / 86400000));
  return card({ id: "a-out", class: "card answer" + (days < 14 ? " poor" : "") }, "Runs out", el("span", { value: pool.forecast.runs_out }, days === 0 ? "today" : days + " days"),
    "pool " + pool.pool + ", " + pool.forecast.by, "95 % sure: " + between(pool.forecast));
}

export function nodes(fleet) {
  const sums = fleet.sums;
  const out = [["suspect", "silent"], ["lost", "lost"], ["cordoned", "cordoned"], ["draining", "draining"], ["quarantined", "quarantined"], ["unfit", "unfit"]]
    .filter(([name]) => sums[name]).map(([name, text]) => count(sums[name]) + " " + text);
  return card({ id: "a-nodes", class: "card answer" + (sums.nodes && sums.schedulable === 0 ? " poor" : "") }, "Nodes that take sandboxes",
    [el("span", { value: sums.schedulable }, count(sums.schedulable)), el("span", { class: "sub" }, " of ", el("span", { value: sums.nodes }, count(sums.nodes)))],
    out.length ? out.join(", ") : count(sums.sandboxes) + " sandboxes run");
}
