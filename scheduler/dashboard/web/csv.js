// SPDX-License-Identifier: Apache-2.0
// What is on the page as a file: one row each, the columns that are named, then those that all rows share.

function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  // a spreadsheet takes what begins so for a formula
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
}

export function csv(rows, columns, shared) {
  const heads = [...columns, ...Object.keys(shared)];
  return [heads, ...rows.map((row) => [...columns.map((name) => row[name]), ...Object.values(shared)])].map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}

export function download(name, rows, columns, shared) {
  const address = URL.createObjectURL(new Blob([csv(rows, columns, shared)], { type: "text/csv" }));
  const a = document.createElement("a");
  a.href = address;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
