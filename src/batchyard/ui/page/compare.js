// Two runs side by side: their steps, by name.

import { count, duration } from "./amounts.js";
import { el } from "./dom.js";
import { follow } from "./live.js";

export function showComparison(view, first, second) {
  const runs = new Map();
  const place = el("div", {}, el("p", { class: "note" }, "Reading the runs …"));
  view.append(el("h1", {}, "Comparison"), place);
  const stops = [first, second].map((run) =>
    follow(`/api/run?run=${encodeURIComponent(run)}`, {
      run: (document) => {
        runs.set(run, document);
        draw();
      },
      trouble: (text) => place.replaceChildren(el("p", { class: "bad" }, text)),
      refused: (text) => place.replaceChildren(el("p", { class: "bad" }, `${run}: ${text}`)),
    }),
  );

  function draw() {
    if (runs.size < new Set([first, second]).size) return;
    const pair = [runs.get(first), runs.get(second)];
    const names = [...new Set(pair.flatMap((run) => run.steps.map((step) => step.name)))];
    const rows = names.map((name) => {
      const [a, b] = pair.map((run) => run.steps.find((step) => step.name === name));
      return el("tr", {}, el("th", { scope: "row", class: "left" }, name), ...cells(a, b));
    });
    const total = (run) => ({
      started_ms: run.started_ms,
      ended_ms: run.ended_ms,
      size: sum(run, (s) => s.size),
      attempts: sum(run, (s) => s.attempts),
      counts: run.steps.reduce((all, s) => all.map((n, i) => n + s.counts[i]), Array(7).fill(0)),
    });
    place.replaceChildren(
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Comparison of the steps" },
        el(
          "table",
          { class: "compare" },
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              el("td"),
              ...pair.map((run) =>
                el(
                  "th",
                  { scope: "colgroup", colspan: "4", class: "group" },
                  el("a", { href: `#/run/${encodeURIComponent(run.run)}` }, run.run),
                ),
              ),
              el("td"),
            ),
            el(
              "tr",
              {},
              el("th", { scope: "col", class: "left" }, "Step"),
              ...pair
                .flatMap(() => ["Took", "Children", "Failed", "Attempts"])
                .map((word) => el("th", { scope: "col" }, word)),
              el("th", { scope: "col" }, "Second of first"),
            ),
          ),
          el("tbody", {}, ...rows),
          el(
            "tfoot",
            {},
            el(
              "tr",
              {},
              el("th", { scope: "row", class: "left" }, "Run"),
              ...cells(total(pair[0]), total(pair[1])),
            ),
          ),
        ),
      ),
    );
  }
  return () => stops.forEach((stop) => stop());
}

const sum = (run, value) => run.steps.reduce((total, step) => total + value(step), 0);
const took = (part) =>
  part && part.started_ms && part.ended_ms ? (part.ended_ms - part.started_ms) / 1000 : null;

function cells(a, b) {
  const [before, after] = [took(a), took(b)];
  const ratio = before && after ? `${((100 * after) / before).toFixed(0)} %` : "";
  return [
    ...[a, b].flatMap((part) =>
      part
        ? [
            duration(took(part)),
            count(part.size),
            part.counts[6] ? count(part.counts[6]) : "",
            count(part.attempts),
          ]
        : ["–", "", "", ""],
    ),
    ratio,
  ].map((text) => el("td", {}, text));
}
