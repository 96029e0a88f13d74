// SPDX-License-Identifier: Apache-2.0
// How much more fits, what stands in the way, what a change would do, and when a pool runs out.

import { get, query } from "./api.js";
import * as answers from "./answers.js";
import { count, day, el, empty, field, meter, mib, percent, table } from "./ui.js";
import { download } from "./csv.js";
import { plot } from "./plot.js";

const DAY = 86400;
const units = { memory: mib, disk: mib, cpu: (v) => count(v), sandboxes: (v) => count(v) };
const unitOf = (name) => units[name] || units[Object.keys(units).find((key) => name.includes(key))] || count;

function verdict(pool) {
  const forecast = pool.forecast;
  if (pool.nodes === 0) return "It has no node.";
  if (forecast.verdict === "grows" && forecast.runs_out)
    return [el("strong", {}, "Runs out of " + forecast.by + " on " + day(forecast.runs_out)), ", 95 % sure: " + answers.between(forecast) + "."];
  if (forecast.verdict === "grows") return "It grows, but reaches no limit that anybody would plan for.";
  if (forecast.verdict === "too_short") return "Not known yet: a forecast needs 7 days of use.";
  return "No trend: use does not grow beyond chance.";
}

// Use by day, the trend with its interval, and the limit.
function forecastPlot(pool) {
  const one = pool.forecast.resources.find((resource) => resource.resource === pool.forecast.by) || pool.forecast.resources.find((resource) => resource.daily.some((v) => v !== null));
  if (!one || one.limit === 0 || one.daily.length < 2) return el("p", { class: "sub" }, "Use by day shows here from the second day on.");
  const last = Date.parse(one.last_day) / 1000, n = one.daily.length, grows = one.verdict === "grows";
  const ahead = grows ? Math.min(200, Math.max(10, one.runs_out ? Math.ceil((Date.parse(one.runs_out) / 1000 - last) / DAY) + 5 : 20)) : 10;
  const times = Array.from({ length: n + ahead }, (_, i) => last + (i - n + 1) * DAY), unit = unitOf(one.resource);
  const line = (slope) => times.map((_, i) => (grows && i >= n - 1 ? one.level + slope * (i - n + 1) : null));
  return plot("Use of " + one.resource + " by day and its trend; the limit is " + unit(one.limit), times, [
    { label: "at most", values: line(one.per_day_high), color: "--line", width: 0.5, band: "--band" }, { label: "at least", values: line(one.per_day_low), color: "--line", width: 0.5 },
    { label: one.resource + ", busiest hour of the day", values: times.map((_, i) => (i < n ? one.daily[i] : null)), color: "--accent", points: true },
    { label: "trend", values: line(one.per_day), color: "--accent", dash: [5, 4] }, { label: "limit", values: times.map(() => one.limit), color: "--bad", dash: [2, 3] }],
  { format: unit, min: () => 0, max: (high) => Math.max(one.limit, Math.min(high, one.limit * 1.3)) * 1.05, height: 220 });
}

function stops(pool) {
  const out = Object.entries(pool.excluded).filter(([, n]) => n > 0);
  return [pool.stops.length ? table("What nodes of " + pool.pool + " stop at, and what is left there", ["Stops at", "#Nodes", "#Memory left", "#vCPUs left", "#Disk left", "#Places left"], pool.stops.map((stop) => el("tr", { "data-stop": stop.by }, el("th", { scope: "row" }, stop.by),
    el("td", { class: "n", value: stop.nodes }, count(stop.nodes)), el("td", { class: "n", value: stop.memory_mib }, mib(stop.memory_mib)), el("td", { class: "n" }, count(stop.vcpus)), el("td", { class: "n" }, mib(stop.disk_mib)), el("td", { class: "n" }, count(stop.sandboxes))))) : null,
  out.length ? el("p", { class: "sub" }, "Take none now: " + out.map(([name, n]) => count(n) + " for " + name).join(", ") + ".") : null, pool.change ? el("p", {}, el("strong", {}, "To make room: "), pool.change) : null];
}

function poolCard(pool, shape) {
  if (pool.nodes === 0)
    return el("section", { class: "card", "data-pool": pool.pool }, el("h2", {}, "Pool " + pool.pool), el("p", { class: "sub" }, el("span", { class: "fits", value: pool.fits }, "Nothing fits: it has no node. "),
      el("span", { class: "verdict", value: pool.forecast.verdict }, pool.change || "")));
  const rest = pool.if ? el("p", { class: "notice" }, "With the change: ", el("strong", { value: pool.if.fits + pool.if.waiting }, count(pool.if.fits + pool.if.waiting)), " fit, ", el("strong", { value: pool.if.more }, (pool.if.more >= 0 ? "+" : "") + count(pool.if.more)), ".") : null;
  return el("section", { class: "card", "data-pool": pool.pool }, el("h2", {}, "Pool " + pool.pool), el("div", { class: "pool-head" }, el("span", { class: "big fits", value: pool.fits }, count(pool.fits)), el("span", {}, "more of " + answers.shapeText(shape) + " fit now" + (pool.waiting ? ", " + count(pool.waiting) + " more when starts under way are over" : ""))),
    el("p", { class: "sub" }, el("span", { value: pool.fitting }, count(pool.fitting)) , " of " + count(pool.nodes) + " nodes take one; overcommit " + count(pool.overcommit_percent) + " %"), rest,
    el("div", { class: "two" }, el("div", {}, meter(pool.used.memory_mib, pool.total.memory_mib, "Memory", mib(pool.used.memory_mib) + " of " + mib(pool.total.memory_mib)), meter(pool.used.vcpus, pool.total.vcpus, "vCPUs", count(pool.used.vcpus) + " of " + count(pool.total.vcpus)),
      meter(pool.used.disk_mib, pool.total.disk_mib, "Disk", mib(pool.used.disk_mib) + " of " + mib(pool.total.disk_mib)), meter(pool.used.sandboxes, pool.total.sandboxes, "Places", count(pool.used.sandboxes) + " of " + count(pool.total.sandboxes)), stops(pool)),
    el("div", {}, el("p", { class: "verdict", value: pool.forecast.verdict }, verdict(pool)), forecastPlot(pool))));
}

export function show(main, ctx) {
  const asked = {};
  let latest = null;
  const again = () => page.refresh().catch((error) => ctx.problem?.(error));
  const set = (name, min) => ({ type: "number", min: String(min), placeholder: "as usual", onchange: (event) => { asked[name] = event.target.value; again(); } });
  const top = el("div", { class: "answers" }), pools = el("div", { class: "stack" });
  const close = () => pools.querySelectorAll(".plot").forEach((one) => one.close && one.close());
  main.append(ctx.head("Capacity", el("button", { type: "button", onclick: () => latest && download("capacity.csv", latest.pools.map((pool) => ({ ...pool, ...Object.fromEntries(["memory_mib", "vcpus", "disk_mib", "sandboxes"].flatMap((name) =>
    [["total_" + name, pool.total[name]], ["used_" + name, pool.used[name]]])), verdict: pool.forecast.verdict, by: pool.forecast.by, runs_out: pool.forecast.runs_out, earliest: pool.forecast.earliest, latest: pool.forecast.latest })),
  ["pool", "customer", "fits", "waiting", "nodes", "fitting", "overcommit_percent", "total_memory_mib", "used_memory_mib", "total_vcpus", "used_vcpus", "total_disk_mib", "used_disk_mib", "total_sandboxes", "used_sandboxes", "verdict", "by", "runs_out", "earliest", "latest"],
  { shape_vcpus: latest.shape.vcpus, shape_memory_mib: latest.shape.memory_mib, shape_disk_mib: latest.shape.disk_mib, as_of: latest.as_of }) }, "CSV")), top,
  el("section", { class: "card ask" }, el("div", { class: "tools" }, field("c-vcpus", "vCPUs", set("vcpus", 1)), field("c-memory", "Memory, MiB", set("memoryMB", 128)), field("c-disk", "Disk, MiB", set("diskSizeMB", 1)),
    field("c-overcommit", "If overcommit were, %", set("if_overcommit", 100)), field("c-nodes", "If more nodes came", set("if_nodes", 1)), field("c-if-vcpus", "If it had vCPUs", set("if_vcpus", 1)))), pools);
  const page = {
    pace: 5000,
    async refresh() {
      const answer = await get("/v1/capacity" + query(asked));
      latest = answer;
      answer.pools.sort((a, b) => (b.nodes > 0) - (a.nodes > 0) || (a.pool < b.pool ? -1 : 1));
      ctx.age(answer.as_of);
      top.replaceChildren(answers.fits(answer), answers.runsOut(answer));
      close();
      pools.replaceChildren(...(answer.pools.length ? answer.pools.map((pool) => poolCard(pool, answer.shape)) : [el("section", { class: "card" }, empty("No pool yet", "Make one, and have nodes join it:", el("pre", { class: "mono" }, "croft pool create NAME\ncroft token create --pool NAME --out token")))]));
    },
    close,
  };
  return page;
}
