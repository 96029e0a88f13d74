// SPDX-License-Identifier: Apache-2.0
// One node: what it takes, what is held against it, how its boots go, and what of its telemetry is missing.

import { get, query } from "./api.js";
import * as answers from "./answers.js";
import { ago, card, count, el, gaps, meter, mib, millis, moment, nodeLink, owner, percent, runLink, table, time } from "./ui.js";

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function findings(node) {
  const list = [];
  if (node.state !== "ready") list.push(["bad", node.state, "It was heard last " + ago(node.heard) + ". What runs there goes on."]);
  if (node.unschedulable) list.push(["bad", node.unschedulable.code, [node.unschedulable.detail || node.unschedulable.message || "", " ", owner(node.unschedulable.owner), " ", node.unschedulable.remedy || ""]]);
  for (const [name, fact] of Object.entries(node.facts)) list.push(["warn", name, (fact.why || "no reason was given") + " (" + fact.who + ", " + moment(fact.since) + (fact.until ? ", until " + moment(fact.until) : "") + ")"]);
  for (const image of node.health.images.filter((one) => one.quarantined)) list.push(["warn", "image", "Starts of " + image.template + " go elsewhere: " + image.why]);
  return list.length ? el("ul", { class: "plain", id: "findings" }, list.map(([tone, name, text]) => el("li", {}, el("span", { class: "tag " + tone }, name), " ", text))) :
    el("p", { class: "sub", id: "findings" }, "Nothing is held against this node.");
}

function boots(node, rates) {
  const ready = answers.stageOf(rates, "ready"), health = node.health;
  return [el("div", { class: "answers" }, card({ id: "n-product", class: "card answer lead" }, "Starts here that succeed", el("span", { value: rates.product }, percent(rates.product)), "24 hours, " + count(ready ? ready.attempts : 0) + " became ready"),
    card({ id: "n-failures" }, "Failed starts", el("span", { value: health.failures }, count(health.failures)), "of " + count(health.starts) + " since it is judged"),
    card({ id: "n-evidence" }, "Evidence against it", el("span", { value: health.evidence_milli }, (health.evidence_milli / 1000).toFixed(2)), health.proven ? "it has booted sandboxes" : "no boot has been seen yet")),
  table("Stages on this node", ["Stage", "#Succeed", "#Attempts", "#Failed", "#p50", "#p99", "Commonest failure"], rates.stages.filter((stage) => stage.attempts).map((stage) => el("tr", { class: stage.stage === rates.weakest ? "weakest" : "" }, el("th", { scope: "row" }, stage.stage),
    el("td", { class: "n", value: stage.success }, percent(stage.success)), el("td", { class: "n" }, count(stage.attempts)), el("td", { class: "n" }, count(stage.failed)), el("td", { class: "n" }, millis(stage.p50_ms)), el("td", { class: "n" }, millis(stage.p99_ms)),
    el("td", {}, stage.codes[0] ? [el("code", {}, stage.codes[0].code), " ", owner(stage.codes[0].owner)] : "–"))), { id: "node-stages" })];
}

function records(answer) {
  const list = answer.records.slice().reverse().slice(0, 100);
  return list.length ? table("What the node told last", ["When", "What", "Outcome", "Code", "Sandbox", "#Took", "#Count", "Detail"], list.map((record) => el("tr", {}, el("td", {}, time(record.when)), el("td", { class: "key" }, record.what),
    el("td", {}, record.outcome ? el("span", { class: "tag " + (record.outcome === "failed" ? "bad" : record.outcome === "ok" ? "ok" : "") }, record.outcome) : "–"), el("td", {}, record.code ? el("code", {}, record.code) : "–"), el("td", {}, runLink(record.sandbox)),
    el("td", { class: "n" }, record.took_ms ? millis(record.took_ms) : "–"), el("td", { class: "n" }, count(record.count)), el("td", { class: "wrap" }, record.detail || ""))), { id: "records" }) : el("p", { class: "sub" }, "It told nothing of a sandbox's life yet.");
}

export function show(main, ctx, id) {
  const note = el("div"), found = el("div"), booted = el("div"), room = el("div"), about = el("div"), told = el("div"), counts = el("p", { class: "sub" });
  const head = ctx.head("Node");
  main.append(head, note, el("div", { class: "stack" }, el("section", { class: "card" }, el("h2", {}, "Findings"), found), el("section", { class: "card" }, el("h2", {}, "Boots"), booted),
    el("div", { class: "two" }, el("section", { class: "card" }, el("h2", {}, "Room"), room), el("section", { class: "card" }, el("h2", {}, "About"), about)),
    el("section", { class: "card" }, el("h2", {}, "Telemetry"), counts, told)));
  return {
    pace: 4000,
    async refresh() {
      const at = "/v1/nodes/" + encodeURIComponent(id);
      const [node, rates, telemetry] = await Promise.all([get(at), get("/v1/stages" + query({ window: "24h", node: id, scope: ctx.scope })), get(at + "/telemetry")]);
      const c = node.capacity;
      head.querySelector("h1").firstChild.data = node.hostname || id;
      document.title = (node.hostname || id) + " · croft";
      ctx.age(rates.as_of);
      note.replaceChildren(...gaps(rates, "The rates are of what is left."), ...gaps(telemetry.counts, "Its figures lack them."));
      found.replaceChildren(findings(node));
      booted.replaceChildren(...boots(node, rates));
      room.replaceChildren(meter(c.memory_reserved_mib, c.memory_mib, "Memory", mib(c.memory_reserved_mib) + " of " + mib(c.memory_mib)), meter(c.disk_reserved_mib, c.disk_mib, "Disk", mib(c.disk_reserved_mib) + " of " + mib(c.disk_mib)),
        meter(c.sandboxes, c.max_sandboxes, "Sandboxes", count(c.sandboxes) + " of " + count(c.max_sandboxes)), meter(c.starting, c.max_starts, "Starts at once", count(c.starting) + " of " + count(c.max_starts)),
        el("p", { class: "sub" }, count(c.vcpus_reserved) + " vCPUs reserved on " + count(c.cpus) + " CPUs; " + count(node.kept.paused) + " paused, " + count(node.kept.snapshots) + " snapshots kept here."));
      about.replaceChildren(facts([["Id", el("code", {}, node.id)], ["Pool", node.pool], ["State", node.state + (node.schedulable ? ", takes sandboxes" : ", takes none")], ["Version", node.version], ["CPU class", node.cpuClass], ["Joined", moment(node.joined)],
        ["Heard", ago(node.heard)], ["Images", count(node.images)], ["Labels", Object.entries(node.labels).map(([k, v]) => k + "=" + v).join(", ")]]));
      counts.replaceChildren(el("span", { value: telemetry.counts.received, id: "t-received" }, count(telemetry.counts.received)), " records received, ", el("span", { value: telemetry.counts.gaps + telemetry.counts.lost, id: "t-gaps" },
        count(telemetry.counts.gaps + telemetry.counts.lost)), " never arrived, ", count(telemetry.counts.repeated), " came twice and count once.");
      told.replaceChildren(records(telemetry));
    },
  };
}
