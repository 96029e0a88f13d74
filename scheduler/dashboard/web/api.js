// SPDX-License-Identifier: Apache-2.0
// The API and its stream of events, with the key in a header: never in an address, a cookie or a log.

let key = null;
const KEPT = "croft.key";

export class Failure extends Error {
  constructor(status, body) {
    const record = body && body.failure;
    super((body && body.message) || "The scheduler answered " + status + ".");
    this.status = status;
    this.code = record ? record.code : "";
    this.owner = record ? record.owner : "";
    this.remedy = record ? record.remedy : "";
  }
}

// Kept, it is in the storage of this tab alone, which ends with the tab.
export function setKey(value, isKept) {
  key = value;
  sessionStorage.removeItem(KEPT);
  if (value && isKept) sessionStorage.setItem(KEPT, value);
}

export function keptKey() {
  return sessionStorage.getItem(KEPT);
}

function headers(more) {
  return Object.assign({ "X-API-Key": key || "" }, more);
}

export function query(values) {
  const list = new URLSearchParams();
  for (const [name, value] of Object.entries(values))
    if (value !== undefined && value !== null && value !== "") list.set(name, value);
  const text = list.toString();
  return text ? "?" + text : "";
}

export async function get(path, signal) {
  let answer;
  try {
    answer = await fetch(path, { headers: headers(), cache: "no-store", credentials: "omit", signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, { message: "The scheduler does not answer.", failure: { code: "SCHEDULER_UNREACHABLE", owner: "",
      remedy: "Look whether it runs and whether this machine reaches it." } });
  }
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Failure(answer.status, body);
  return body;
}

// Calls on.state("live" | "waiting" | "refused"), on.hello(data), on.changed(data), on.failure(data). Goes on behind the last event after
// a break, with waits that grow to 30 s. Returns what ends it.
export function listen(on, scope) {
  const control = new AbortController();
  let last = "", wait = 1000;

  async function read(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) take(text.slice(0, end));
    }
  }

  function take(block) {
    let name = "", data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
      else if (line.startsWith("id: ")) last = line.slice(4);
    }
    if (name && on[name]) on[name](JSON.parse(data));
  }

  async function run() {
    while (!control.signal.aborted) {
      try {
        const answer = await fetch("/v1/events" + query({ scope }), { headers: headers(last ? { "Last-Event-ID": last } : {}), cache: "no-store",
          credentials: "omit", signal: control.signal });
        if (answer.status === 401 || answer.status === 403) {
          on.state("refused");
          return;
        }
        if (answer.ok) {
          wait = 1000;
          on.state("live");
          await read(answer.body);
        }
      } catch (error) {
        if (control.signal.aborted) return;
      }
      on.state("waiting");
      await new Promise((done) => setTimeout(done, wait * (0.5 + Math.random() / 2)));
      wait = Math.min(wait * 2, 30000);
    }
  }
  run();
  return () => control.abort();
}
