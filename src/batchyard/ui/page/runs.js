// The list of runs.

import { age, count, dollars, duration, time } from "./amounts.js";
import { el, setAttribute, setText, syncChildren } from "./dom.js";
import { follow } from "./live.js";
import { TONES } from "./states.js";

const PAGE = 200;

export function showRuns(view, about) {
  let order = [],
    trouble = "",
    shown = PAGE;
  const rows = new Map(),
    chosen = new Set();
  const search = el("input", {
    type: "search",
    id: "search",
    placeholder: "name or id",
    oninput: draw,
  });
  const state = el(
    "select",
    { id: "state", onchange: draw },
    ...["all", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED", "INTERRUPTED"].map((word) =>
      el("option", { value: word }, word.toLowerCase()),
    ),
  );
  const compare = el("a", { class: "button", "aria-disabled": "true" }, "Compare two");
  const body = el("tbody");
  const note = el("p", { class: "note", role: "status" }, "Reading the runs …");
  const troubleNote = el("p", { class: "warn", role: "status" });
  const more = el(
    "button",
    {
      type: "button",
      hidden: true,
      onclick: () => {
        shown += PAGE;
        draw();
      },
    },
    "Show more",
  );
  view.append(
    el("h1", {}, "Runs"),
    el(
      "p",
      { class: "lead" },
      about.home,
      about.environment ? ` and environment ${about.environment}` : "",
    ),
    el(
      "div",
      { class: "tools" },
      el("label", { for: "search" }, "Search ", search),
      el("label", { for: "state" }, "State ", state),
      compare,
    ),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" },
      el(
        "table",
        { class: "runs" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ...[
              "",
              "Run",
              "State",
              "Progress",
              "Started",
              "Took",
              "Children",
              "Failed",
              "Cost",
            ].map((text, i) =>
              el(
                "th",
                { scope: "col", class: i < 4 ? "left" : null },
                text || el("span", { class: "hidden" }, "Compare"),
              ),
            ),
          ),
        ),
        body,
      ),
    ),
    note,
    troubleNote,
    more,
  );

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = order.filter((name) => {
      const row = rows.get(name);
      return (
        row &&
        (state.value === "all" || row.state === state.value) &&
        words.every((word) => name.includes(word))
      );
    });
    syncChildren(
      body,
      matching.slice(0, shown).map((name) => [name, rows.get(name)]),
      makeRow,
      updateRow,
    );
    more.hidden = matching.length <= shown;
    setText(troubleNote, trouble ? `Runs of other machines are not listed: ${trouble}` : "");
    setText(
      note,
      order.length === 0
        ? "There are no runs yet: `batchyard run FILE` starts one."
        : matching.length === 0
          ? "No run matches."
          : matching.length < order.length
            ? `${count(matching.length)} of ${count(order.length)} runs`
            : "",
    );
  }

  function makeRow(row) {
    const box = el("input", {
      type: "checkbox",
      "aria-label": `Compare ${row.run}`,
      onchange: () => {
        if (box.checked) chosen.add(row.run);
        else chosen.delete(row.run);
        const isPair = chosen.size === 2;
        setAttribute(
          compare,
          "href",
          isPair ? `#/compare/${[...chosen].map(encodeURIComponent).join("/")}` : null,
        );
        setAttribute(compare, "aria-disabled", isPair ? null : "true");
      },
    });
    const bar = el(
      "span",
      { class: "bar" },
      el("span", { class: "part part-succeeded" }),
      el("span", { class: "part part-failed" }),
    );
    return el(
      "tr",
      {},
      el("td", {}, box),
      el(
        "th",
        { scope: "row", class: "left" },
        el("a", { href: `#/run/${encodeURIComponent(row.run)}` }, row.run),
      ),
      el("td", { class: "left" }, el("span", { class: "badge" })),
      el("td", { class: "left" }, bar, el("span", { class: "share" })),
      ...[0, 1, 2, 3, 4].map(() => el("td")),
    );
  }

  function updateRow(node, row) {
    const cells = node.children;
    const badge = cells[2].firstChild,
      [bar, share] = cells[3].children;
    setText(badge, row.state);
    setAttribute(badge, "class", `badge ${TONES[row.state] ?? ""}`);
    setAttribute(badge, "title", row.trouble ?? null);
    const [done, total, failed] = row.work ?? [0, 0, 0];
    bar.children[0].style.width = `${total ? Math.max(0, (100 * (done - failed)) / total) : 0}%`;
    bar.children[1].style.width = `${total ? (100 * failed) / total : 0}%`;
    setText(share, total ? `${Math.floor((100 * done) / total)} %` : "");
    const end = row.ended_ms ?? (row.state === "RUNNING" ? Date.now() : null);
    setText(cells[4], row.started_ms ? age(row.started_ms) : "");
    setAttribute(cells[4], "title", row.started_ms ? time(row.started_ms) : null);
    setText(cells[5], row.started_ms && end ? duration((end - row.started_ms) / 1000) : "");
    setText(cells[6], row.children === undefined ? "" : count(row.children));
    setText(cells[7], row.failed ? count(row.failed) : "");
    setAttribute(cells[7], "class", row.failed ? "bad" : null);
    setText(cells[8], row.paid_usd ? dollars(row.paid_usd) : "");
  }

  const timer = setInterval(draw, 5000);
  const stop = follow("/api/runs", {
    runs: (news) => {
      order = news.order;
      trouble = news.trouble;
      for (const [name, row] of Object.entries(news.rows)) rows.set(name, row);
      draw();
    },
    trouble: (text) => {
      trouble = text;
      setText(troubleNote, text);
    },
  });
  return () => {
    clearInterval(timer);
    stop();
  };
}
