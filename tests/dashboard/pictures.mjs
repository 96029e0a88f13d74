// SPDX-License-Identifier: Apache-2.0
// The pictures in docs/pictures, of the world that the tests look at too.

import { mkdir } from "node:fs/promises";
import { goTo, logIn, openPage, startBrowser, startWorld } from "./world.mjs";

const to = new URL("../../docs/pictures/", import.meta.url).pathname;
const world = await startWorld(12, 30, 16, 60), browser = await startBrowser();
await mkdir(to, { recursive: true });
for (const command of ["fail IMAGE_DIGEST_MISMATCH", "fail SETUP_FAILED", "saved IMAGE_FETCH_FAILED", "fail GUEST_PANIC", "cordon 2", "cut 5"]) await world.say(command);
await new Promise((done) => setTimeout(done, 2500)); // until the silent node is suspect
const failed = (await world.api("/v1/failures?scope=all")).failures, nodes = (await world.api("/v1/fleet")).nodes;
const pictures = [["overview", "#/", "light"], ["stages", "#/stages", "dark"], ["failures", "#/failures", "light"], ["fleet", "#/fleet", "light"], ["capacity", "#/capacity", "dark"],
  ["run", "#/run/" + failed.find((one) => one.code === "GUEST_PANIC").sandbox, "light"], ["node", "#/node/" + nodes[2].id, "light"], ["phone", "#/", "dark", 390, 844]];
for (const [name, hash, theme, width = 1180, height = 860] of pictures) {
  const page = await openPage(browser, world, { theme, width, height });
  await logIn(page, world.planner);
  await goTo(page, hash);
  await page.waitForTimeout(400);
  await page.screenshot({ path: to + name + ".png" });
  await page.context().close();
}
await browser.close();
await world.stop();
