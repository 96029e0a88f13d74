// SPDX-License-Identifier: Apache-2.0
// uPlot in the page's colours, as wide as its place.

import { color, el } from "./ui.js";

// series: [{ label, values, color (a variable of the style sheet), dash, fill, width, points }]; format(v) for the axis and the legend. `said` is what
// the plot shows, for those who do not see it.
function tick(at, step) {
  const when = new Date(at * 1000);
  return step >= 43200 || (when.getHours() === 0 && when.getMinutes() === 0) ? when.toLocaleDateString("en-GB", { day: "numeric", month: "short" }) :
    when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined });
}

export function plot(said, times, series, { format, min, max, height = 200 }) {
  const place = el("figure", { class: "plot", role: "img", "aria-label": said });
  const axis = () => ({ stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "12px system-ui, sans-serif" });
  const options = {
    width: 300, height, cursor: { y: false }, legend: { live: true },
    scales: { x: { time: true, range: (u, first, last) => [first, last + (last - first) * 0.015] }, y: { range: (u, low, high) => [min !== undefined ? min(low) : low, max !== undefined ? max(high) : high] } },
    axes: [Object.assign(axis(), { values: (u, list, i, room, step) => list.map((at) => tick(at, step)) }), Object.assign(axis(), { size: 70, values: (u, list) => list.map(format) })],
    series: [{ value: (u, at) => (at ? new Date(at * 1000).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }) : "–") },
      ...series.map((one) => ({ label: one.label, stroke: color(one.color), width: one.width === undefined ? 2 : one.width, dash: one.dash,
        fill: one.fill ? color(one.fill) : undefined, spanGaps: false, points: { show: one.points || false, size: 6, fill: color(one.color) }, value: (u, v) => (v === null || v === undefined ? "–" : format(v)) }))],
    bands: series.flatMap((one, i) => (one.band ? [{ series: [i + 1, i + 2], fill: color(one.band) }] : [])),
  };
  const chart = new window.uPlot(options, [times, ...series.map((one) => one.values)], place);
  const fit = () => place.clientWidth > 0 && chart.setSize({ width: place.clientWidth, height });
  const watch = new ResizeObserver(fit);
  watch.observe(place);
  place.close = () => {
    watch.disconnect();
    chart.destroy();
  };
  return place;
}
