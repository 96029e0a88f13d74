// SPDX-License-Identifier: Apache-2.0
// A scheduler with made-up nodes (world.c), and a browser that writes down what it should not do.

import { spawn } from "node:child_process";
import readline from "node:readline";
import { chromium } from "playwright-core";

export async function startWorld(nodes, starts, days, past = 0) {
  const child = spawn(process.env.CROFT_BIN + "/dashboard-world", [nodes, starts, days, past].map(String), { stdio: ["pipe", "pipe", "inherit"] });
  const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const first = await lines.next();
  if (first.done) throw new Error("the world did not begin");
  const at = JSON.parse(first.value);
  return {
    ...at,
    async say(command) {
      child.stdin.write(command + "\n");
      const answer = await lines.next();
      if (answer.value !== "done") throw new Error(command + ": " + answer.value);
    },
    async api(path, key = at.planner) {
      const answer = await fetch(at.url + path, { headers: { "X-API-Key": key } });
      if (!answer.ok) throw new Error(path + ": " + answer.status);
      return answer.json();
    },
    async stop() {
      const over = new Promise((done) => child.on("exit", done));
      child.stdin.end();
      return over;
    },
  };
}

export function startBrowser() {
  return chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-background-networking"] });
}

// `wrong` gathers console errors, exceptions and requests to any other host.
export async function openPage(browser, world, { width = 1280, height = 900, theme = "light", wrong = [], context: made } = {}) {
  const context = made || await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: "reduce", timezoneId: "UTC", locale: "en-GB" });
  const page = await context.newPage();
  page.setDefaultTimeout(15000);
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) wrong.push(message.text()); });
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("request", (request) => { if (!request.url().startsWith(world.url + "/") && !request.url().startsWith("blob:")) wrong.push("asked " + request.url()); });
  await page.goto(world.url + "/");
  return page;
}

export async function logIn(page, key) {
  await page.fill("#key", key);
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.body.dataset.shown === "#/");
}

export async function goTo(page, hash) {
  await page.evaluate((to) => {
    if (location.hash === to || (to === "#/" && !location.hash)) return;
    delete document.body.dataset.shown;
    location.hash = to;
  }, hash);
  await page.waitForFunction((to) => document.body.dataset.shown === to, hash);
}
