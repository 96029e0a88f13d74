// SPDX-License-Identifier: Apache-2.0
// Each page in a real browser: its numbers are the API's, it asks nobody else, it fits a phone, a keyboard is enough, and an empty
// fleet and one of ten thousand nodes both show.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { goTo, logIn, openPage, startBrowser, startWorld } from "./world.mjs";

const wrong = [];
let world, browser, page, hashes;

before(async () => {
  [world, browser] = await Promise.all([startWorld(5, 6, 14, 20), startBrowser()]);
  for (const command of ["fail IMAGE_DIGEST_MISMATCH", "fail SETUP_FAILED", "saved IMAGE_FETCH_FAILED", "cordon 2"]) await world.say(command);
  page = await openPage(browser, world, { wrong });
  await logIn(page, world.planner);
  const fleet = await world.api("/v1/fleet"), failed = await world.api("/v1/failures?scope=all"), boxes = await world.api("/v1/sandboxes?scope=all");
  hashes = ["#/", "#/stages", "#/failures", "#/fleet", "#/capacity", "#/run", "#/run/" + boxes[0].id, "#/run/" + failed.failures.find((one) => !one.saved).sandbox, "#/node/" + fleet.nodes[0].id];
});

after(async () => {
  await browser.close();
  assert.equal(await world.stop(), 0);
});

async function value(selector, on = page) {
  return on.locator(selector).first().getAttribute("data-value");
}
async function same(selector, number, on = page) {
  assert.equal(await value(selector, on), String(number), selector);
}
// What is read, beside what is kept behind it.
function reads(text, share) {
  assert.ok(Math.abs(parseFloat(text) - share * 100) < 0.06, text + " for " + share);
}

test("the key is asked for, and goes nowhere else", async () => {
  const context = await browser.newContext({ reducedMotion: "reduce" }), urls = [], mine = [];
  const other = await openPage(browser, world, { context, wrong: mine });
  other.on("request", (request) => urls.push(request.url()));
  await other.fill("#key", "croft_wrong");
  await other.keyboard.press("Enter");
  await other.waitForSelector('[role="alert"] .notice');
  assert.match(await other.textContent('[role="alert"]'), /UNAUTHENTICATED/);
  await logIn(other, world.planner);
  assert.equal(await other.evaluate(() => sessionStorage.length + localStorage.length + document.cookie.length), 0);
  assert.ok(urls.length > 5 && urls.every((url) => !url.includes("croft_")), "an address has the key");
  await other.reload();
  assert.ok(await other.isVisible("#key"), "a key that was not to be kept was");
  await other.check("#keep");
  await logIn(other, world.planner);
  await other.reload();
  await other.waitForFunction(() => document.body.dataset.shown === "#/");
  await other.click("#leave");
  assert.equal(await other.evaluate(() => sessionStorage.length), 0);
  assert.ok(mine.every((text) => /401/.test(text)), mine.join("\n")); // the wrong key
  await context.close();
});

test("overview", async () => {
  await goTo(page, "#/");
  const [stages, failures, capacity, fleet] = await Promise.all(["/v1/stages?window=24h&scope=all", "/v1/failures?scope=all&limit=6", "/v1/capacity", "/v1/fleet?limit=0"].map((path) => world.api(path)));
  await same("#a-product [data-value]", stages.product);
  reads(await page.textContent("#a-product .big"), stages.product);
  await same("#a-weakest [data-value]", stages.weakest);
  const code = stages.stages.find((one) => one.stage === stages.weakest).codes[0];
  assert.match(await page.textContent("#a-weakest"), new RegExp(code.owner + ".*" + code.code));
  await same("#a-fits [data-value]", capacity.pools.reduce((sum, pool) => sum + pool.fits, 0));
  await same("#a-out [data-value]", capacity.pools.find((pool) => pool.forecast.verdict === "grows").forecast.runs_out);
  await same("#a-nodes [data-value]", fleet.sums.schedulable);
  assert.equal(await page.locator("#a-nodes [data-value]").nth(1).getAttribute("data-value"), String(fleet.sums.nodes));
  for (const [name, n] of Object.entries(failures.owners)) await same("#by-" + name, n.failed);
  assert.equal(await page.locator(".plot canvas").count(), 1);
  assert.match(await page.textContent(".age"), /as of \d\d:\d\d:\d\d/);
});

test("stages", async () => {
  await goTo(page, "#/stages");
  const answer = await world.api("/v1/stages?window=24h&scope=all");
  let left = 1;
  for (const stage of answer.stages) {
    const row = page.locator(`#waterfall tr[data-stage="${stage.stage}"]`);
    const shown = await row.locator("[data-value]").evaluateAll((list) => list.map((one) => one.dataset.value));
    left *= stage.success ?? 1;
    assert.deepEqual(shown, [stage.success ?? "", left, stage.attempts, stage.failed, stage.saved, stage.p50_ms, stage.p95_ms, stage.p99_ms].map(String), stage.stage);
    if (stage.success !== null) reads(await row.locator("td").first().textContent(), stage.success);
  }
  assert.ok(Math.abs(left - answer.product) < 1e-6, "the waterfall ends at the product");
  assert.equal(await page.getAttribute("#waterfall tr.weakest", "data-stage"), answer.weakest);
  await page.click(`#waterfall tr[data-stage="${answer.weakest}"] button`);
  const why = answer.stages.find((one) => one.stage === answer.weakest).codes[0];
  assert.match(await page.textContent("#why-" + answer.weakest), new RegExp(why.code));
  assert.ok((await page.textContent("#why-" + answer.weakest)).includes(why.remedy));
  await page.fill("#if-success", "99.9");
  await page.selectOption("#if-stage", answer.weakest);
  const then = await world.api(`/v1/stages?window=24h&scope=all&what_if=${answer.weakest}:0.999`);
  await page.waitForFunction((product) => document.querySelector("#what-if [data-value]")?.dataset.value === product, String(then.what_if.product));
});

test("failures, as they happen", async () => {
  await goTo(page, "#/failures");
  const all = () => world.api("/v1/failures?scope=all&limit=200");
  const sum = (answer, name) => Object.values(answer.owners).reduce((n, one) => n + one[name], 0);
  let answer = await all();
  await same("#f-all [data-value]", sum(answer, "failed"));
  await same("#f-saved [data-value]", sum(answer, "saved"));
  assert.equal(await page.locator("#feed tbody tr").count(), answer.failures.length);
  assert.equal(await page.locator("#feed tbody tr code").first().textContent(), answer.failures[0].code);
  await page.waitForFunction(() => document.getElementById("live").dataset.state === "live");
  await world.say("fail GUEST_PANIC");
  await page.waitForFunction(() => document.querySelector("#feed tbody code").textContent === "GUEST_PANIC");
  answer = await all();
  await page.waitForFunction((n) => document.querySelector("#f-all [data-value]").dataset.value === n, String(sum(answer, "failed")));
  await page.click('.chips [data-owner="customer"]');
  await page.waitForFunction(() => document.querySelector('.chips [data-owner="customer"]').getAttribute("aria-pressed") === "true");
  const owners = await page.locator("#feed tbody .owner").allTextContents();
  assert.ok(owners.length > 0 && owners.every((name) => name === "customer"), owners.join());
});

test("fleet", async () => {
  await goTo(page, "#/fleet");
  const fleet = await world.api("/v1/fleet");
  await same("#s-sandboxes [data-value]", fleet.sums.sandboxes);
  await same("#s-memory [data-value]", fleet.sums.memory_reserved_mib);
  await same("#s-vcpus [data-value]", fleet.sums.vcpus_reserved);
  assert.equal(await page.getAttribute("#heat", "data-cells"), String(fleet.nodes.length));
  for (const node of fleet.nodes) {
    const row = page.locator(`#nodes tr[data-node="${node.id}"]`);
    assert.deepEqual(await row.locator("[data-value]").evaluateAll((list) => list.map((one) => one.dataset.value)),
      [node.sandboxes, node.memory_reserved_mib, node.vcpus_reserved, node.failures].map(String), node.hostname);
  }
  assert.match(await page.textContent("#nodes tbody tr"), /cordoned/, "what takes nothing comes first");
  await page.fill("#search", "host-04");
  assert.equal(await page.locator("#nodes tbody tr").count(), 1);
  await page.fill("#search", "");
});

test("a node", async () => {
  await goTo(page, hashes[8]);
  const id = hashes[8].slice(7), node = await world.api("/v1/nodes/" + id), rates = await world.api("/v1/stages?window=24h&scope=all&node=" + id);
  assert.match(await page.textContent("h1"), new RegExp(node.hostname));
  await same("#n-product [data-value]", rates.product);
  await same("#n-failures [data-value]", node.health.failures);
  await same("#t-received", node.telemetry.received);
  await same(".meter [data-value]", node.capacity.memory_reserved_mib);
  const cordoned = (await world.api("/v1/nodes")).find((one) => one.facts.cordoned);
  await goTo(page, "#/node/" + cordoned.id);
  assert.match(await page.textContent("#findings"), /cordoned.*a disk is changed/);
});

test("one run over all processes", async () => {
  for (const hash of hashes.slice(6, 8)) {
    await goTo(page, hash);
    const run = await world.api("/v1/traces/" + hash.slice(6));
    const rows = await page.locator("#timeline tbody tr").evaluateAll((list) => list.map((row) => [row.cells[0].textContent, row.dataset.stage, ...[...row.querySelectorAll("[data-value]")].map((one) => one.dataset.value)]));
    const end = Math.max(...run.steps.map((step) => step.at_us + step.took_us));
    assert.deepEqual(rows, run.steps.map((step) => [step.process, step.stage, String(step.at_us), String(step.took_us)]));
    assert.ok(new Set(rows.map((row) => row[0])).size >= 3, "several processes");
    assert.ok(end >= Number(await value("#r-took [data-value]")));
  }
  const sandbox = await world.api("/v1/sandboxes/" + hashes[7].slice(6));
  assert.match(await page.textContent("#r-failure"), new RegExp(sandbox.failure.stage + ".*" + sandbox.failure.code + ".*" + sandbox.failure.owner));
  await goTo(page, "#/run");
  assert.equal(await page.locator("#sandboxes tbody tr").count(), (await world.api("/v1/sandboxes?scope=all")).length);
});

test("what is not there is said, once", async () => {
  const context = await browser.newContext(), lost = await openPage(browser, world, { context });
  await logIn(lost, world.planner);
  await goTo(lost, "#/run/nothing");
  assert.equal(await lost.locator("main > .notice.bad").count(), 1);
  assert.match(await lost.textContent("main > .notice.bad"), /SANDBOX_NOT_FOUND.*croft sandbox list/);
  await goTo(lost, "#/");
  assert.equal(await lost.locator("main > .notice.bad").count(), 0);
  await context.close();
});

test("capacity, forecast and what a change would do", async () => {
  await goTo(page, "#/capacity");
  const answer = await world.api("/v1/capacity");
  for (const pool of answer.pools) {
    const card = `[data-pool="${pool.pool}"]`;
    await same(card + " .fits", pool.fits);
    await same(card + " .verdict", pool.forecast.verdict);
    assert.deepEqual(await page.locator(card + " tr[data-stop]").evaluateAll((list) => list.map((row) => row.dataset.stop)), pool.stops.map((stop) => stop.by));
  }
  assert.match(await page.textContent('[data-pool="default"] .verdict'), /Runs out of/);
  assert.ok(await page.locator('[data-pool="default"] .plot canvas').count() === 1);
  await page.fill("#c-nodes", "2");
  await page.keyboard.press("Enter");
  const then = (await world.api("/v1/capacity?if_nodes=2")).pools.find((pool) => pool.pool === "default").if;
  await page.waitForSelector('[data-pool="default"] .notice [data-value]');
  assert.deepEqual(await page.locator('[data-pool="default"] .notice [data-value]').evaluateAll((list) => list.map((one) => one.dataset.value)), [String(then.fits + then.waiting), String(then.more)]);
  const [file] = await Promise.all([page.waitForEvent("download"), page.click("text=CSV")]);
  let text = "";
  for await (const piece of await file.createReadStream()) text += piece;
  assert.equal(text.trim().split("\r\n").length, answer.pools.length + 1);
  assert.match(text, /^pool,customer,fits,/);
});

test("a tenant sees its own, and no page that it may not", async () => {
  const context = await browser.newContext(), mine = [], own = await openPage(browser, world, { context, wrong: mine });
  await logIn(own, world.tenant);
  assert.deepEqual(await own.locator("nav a").allTextContents(), ["Overview", "Stages", "Failures", "Runs"]);
  await same("#a-product [data-value]", (await world.api("/v1/stages?window=24h", world.tenant)).product, own);
  await goTo(own, "#/fleet");
  assert.match(await own.textContent("h1"), /Overview/);
  await own.click("#leave");
  await logIn(own, world.sibling);
  assert.match(await own.textContent("#a-product"), /Nothing was started/);
  await goTo(own, "#/failures");
  await own.waitForFunction(() => document.getElementById("live").dataset.state === "live");
  await world.say("fail KERNEL_MISSING");
  await page.waitForTimeout(300);
  assert.equal(await own.locator("#feed").count(), 0, "another tenant's failure came");
  assert.deepEqual(mine, []);
  await context.close();
});

test("390 px wide nothing scrolls sideways, in light and dark, and everything has a name", async () => {
  for (const theme of ["light", "dark"]) {
    const phone = await openPage(browser, world, { width: 390, height: 844, theme, wrong });
    await logIn(phone, world.planner);
    for (const hash of hashes) {
      await goTo(phone, hash);
      const found = await phone.evaluate(() => ({
        wide: document.documentElement.scrollWidth - innerWidth, heads: document.querySelectorAll("h1").length,
        nameless: [...document.querySelectorAll("input, select, button, canvas#heat, img, table")].filter((one) => !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim() || one.hasAttribute("alt") || one.caption)).map((one) => one.outerHTML),
        moving: document.getAnimations().length,
      }));
      assert.deepEqual(found, { wide: 0, heads: 1, nameless: [], moving: 0 }, theme + " " + hash);
    }
    await phone.context().close();
  }
});

test("what is read stands out from its ground", async () => {
  for (const theme of ["light", "dark"]) {
    const poor = await page.evaluate((name) => {
      document.documentElement.dataset.theme = name;
      const style = getComputedStyle(document.documentElement);
      const light = (variable) => {
        const text = style.getPropertyValue(variable).trim();
        const [r, g, b] = [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16) / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const pairs = ["--ink", "--soft", "--accent", "--bad", "--ok", "--warn", "--o-caller", "--o-customer", "--o-provider", "--o-third"].flatMap((front) => [[front, "--card"], [front, "--ground"]]);
      pairs.push(["--on-accent", "--accent"], ["--accent", "--accent-soft"], ["--bad", "--bad-soft"], ["--warn", "--warn-soft"], ["--ink", "--bad-soft"], ["--ink", "--warn-soft"]);
      return pairs.map(([front, ground]) => [front, ground, (Math.max(light(front), light(ground)) + 0.05) / (Math.min(light(front), light(ground)) + 0.05)]).filter(([, , ratio]) => !(ratio >= 4.5));
    }, theme);
    assert.deepEqual(poor, [], theme);
  }
});

test("a keyboard is enough", async () => {
  const typed = await openPage(browser, world, { wrong });
  const press = (key) => typed.keyboard.press(key);
  const tabTo = async (selector) => {
    for (let i = 0; i < 80; i++) {
      if (await typed.evaluate((wanted) => document.activeElement?.matches(wanted), selector)) return;
      await press("Tab");
    }
    assert.fail("Tab does not reach " + selector);
  };
  await typed.keyboard.type(world.planner); // the field has the focus
  await press("Enter");
  await typed.waitForFunction(() => document.body.dataset.shown === "#/");
  await tabTo('nav a[data-path="fleet"]');
  await press("Enter");
  await typed.waitForFunction(() => document.body.dataset.shown === "#/fleet");
  await tabTo("#heat");
  await press("ArrowRight");
  await press("ArrowRight");
  const said = await typed.textContent(".map [role=status]");
  assert.match(said, /^host-0\d, /);
  await press("Enter");
  await typed.waitForFunction(() => document.body.dataset.shown.startsWith("#/node/"));
  assert.ok(said.startsWith((await typed.textContent("h1")).match(/host-\d+/)[0]));
  await typed.evaluate(() => { location.hash = "#/stages"; });
  await typed.waitForFunction(() => document.body.dataset.shown === "#/stages");
  await tabTo("#waterfall button");
  await press("Space");
  assert.equal(await typed.getAttribute("#waterfall button", "aria-expanded"), "true");
  await typed.context().close();
});

test("an empty fleet says so, and what to do next", async () => {
  const none = await startWorld(0, 0, 0), there = await openPage(browser, none, { wrong: wrong });
  await logIn(there, none.planner);
  assert.match(await there.textContent("main"), /No node has joined yet.*croft token create/s);
  for (const hash of ["#/stages", "#/failures", "#/fleet", "#/capacity", "#/run"]) {
    await goTo(there, hash);
    assert.ok(await there.locator(".empty, .notice, [data-pool]").count() > 0, hash);
    assert.equal(await there.locator("main > .notice.bad").count(), 0, hash);
  }
  await there.context().close();
  assert.equal(await none.stop(), 0);
});

// The frame's part of ten thousand nodes; the scheduler's pages are in tests/unit/test-api-dashboard.c.
function manyNodes(n) {
  return Array.from({ length: n }, (_, i) => ({ id: "n" + String(i).padStart(19, "0"), pool: "pool-" + (i % 7), hostname: i === 7 ? "<img src=x onerror=alert(1)>" : "host-" + i, version: "0.1.0", state: i % 97 ? "ready" : "lost",
    schedulable: i % 97 !== 0, unfit: null, facts: [], memory_mib: 65536, memory_reserved_mib: (i * 7919) % 65536, vcpus: 128, vcpus_reserved: i % 128, disk_mib: 1e6, disk_reserved_mib: 1e5, sandboxes: i % 60, max_sandboxes: 60, starts: 100, failures: i % 3, heard: new Date().toISOString() }));
}

test("ten thousand nodes, and what they call themselves is text", async () => {
  const list = manyNodes(10000), context = await browser.newContext({ viewport: { width: 390, height: 844 } }), big = await openPage(browser, world, { context, wrong });
  const sums = { nodes: 10000, schedulable: 9896, unfit: 0, lost: 104, suspect: 0, cordoned: 0, draining: 0, quarantined: 0, memory_mib: 655360000, memory_reserved_mib: 327680000, vcpus: 1280000, vcpus_reserved: 635000, sandboxes: 295000, starting: 0 };
  await big.route("**/v1/fleet**", (route) => {
    const query = new URL(route.request().url()).searchParams, from = query.get("after") ? list.findIndex((node) => node.id === query.get("after")) + 1 : 0, limit = Number(query.get("limit") ?? 1000);
    const nodes = list.slice(from, from + limit);
    route.fulfill({ json: { sums: from ? null : sums, nodes, next: limit && from + limit < list.length ? nodes.at(-1).id : null, as_of: new Date().toISOString() } });
  });
  await logIn(big, world.planner);
  const began = Date.now();
  await goTo(big, "#/fleet");
  const took = Date.now() - began;
  assert.equal(await big.getAttribute("#heat", "data-cells"), "10000");
  assert.equal(await big.locator("#nodes tbody tr").count(), 50);
  assert.equal(await big.evaluate(() => document.documentElement.scrollWidth - innerWidth), 0);
  assert.ok(took < 10000, "it took " + took + " ms");
  const painted = await big.evaluate(() => {
    const canvas = document.getElementById("heat"), pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
    for (let i = 0; i < pixels.length; i += 4 * 37) seen.add(pixels[i] + "," + pixels[i + 1] + "," + pixels[i + 2]);
    return seen.size;
  });
  assert.ok(painted > 15, "shades: " + painted);
  await big.click("#next");
  assert.match(await big.textContent(".pages"), /page 2 of 200/);
  await big.fill("#search", "<img");
  assert.match(await big.textContent("#nodes tbody th"), /<img src=x/);
  assert.equal(await big.locator("#nodes img").count(), 0);
  await context.close();
});

test("what is missing is said beside the figures", async () => {
  const context = await browser.newContext(), holes = await openPage(browser, world, { context, wrong });
  await holes.route(/\/v1\/stages\?/, async (route) => {
    const answer = await route.fetch();
    route.fulfill({ response: answer, json: { ...(await answer.json()), complete: false, dropped: 4711 } });
  });
  await logIn(holes, world.planner);
  for (const hash of ["#/", "#/stages", hashes[8]]) {
    await goTo(holes, hash);
    assert.match(await holes.textContent(".notice.gap"), /Gap.*4\s?711/s, hash);
  }
  await context.close();
});

test("nothing went wrong in any of this", () => {
  assert.deepEqual(wrong, []);
});
