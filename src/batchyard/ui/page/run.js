// One run: its steps, the children of one of them, its failures, charts and what it waits for.

import { count, dollars, duration, memory, plural, rate, time } from "./amounts.js";
import { commandLine, el, setAttribute, setText, syncChildren } from "./dom.js";
import { Graph } from "./graph.js";
import { Grid } from "./grid.js";
import { follow, get } from "./live.js";
import { BAR, TONES } from "./states.js";
import { readAnsi } from "./ansi.js";
import { makeActions } from "./actions.js";
import { Charts } from "./charts.js";

const TAIL_LINES = 12;

export function showRun(view, about, run, wantedStep) {
  let document_ = null,
    grid = null,
    graph = null,
    chosen = wantedStep ?? null,
    stop = () => {};
  const parts = makeParts(run);
  const charts = new Charts(run);
  const actions = about.allows_actions ? makeActions(run) : null;
  if (actions) parts.title.append(actions.node);
  view.append(...parts.nodes, charts.node);

  function open() {
    stop();
    const step = chosen ? `&step=${encodeURIComponent(chosen)}` : "";
    stop = follow(`/api/run?run=${encodeURIComponent(run)}${step}`, {
      run: onRun,
      children: (event) => {
        if (grid && event.step === grid.step) grid.take(event);
      },
      trouble: (text) => parts.setNotes([text]),
      refused: (text) => {
        setText(parts.badge, "");
        setText(parts.lead, `This run cannot be shown: ${text}.`);
      },
    });
  }

  function onRun(document) {
    document_ = document;
    if (!chosen || !document.steps.some((step) => step.name === chosen)) {
      choose(mostInteresting(document.steps), false);
      return;
    }
    if (!graph && Graph.fits(document.steps)) {
      graph = new Graph(document.steps, (step) => choose(step, true));
      parts.graph.append(graph.node);
      parts.graph.hidden = false;
    }
    if (!grid) showGrid();
    draw();
  }

  function choose(step, isAsked) {
    if (isAsked) location.hash = `#/run/${encodeURIComponent(run)}/${encodeURIComponent(step)}`;
    if (step === chosen) return;
    chosen = step;
    if (grid) grid.close();
    grid = null;
    open();
  }

  function showGrid() {
    grid = new Grid(run, chosen);
    parts.children.replaceChildren(el("h2", {}, `Children of ${chosen}`), grid.node);
  }

  function draw() {
    drawHeader(parts, document_);
    syncChildren(
      parts.rows,
      document_.steps.map((step) => [step.name, step]),
      (step) => makeStep(step, run),
      updateStep,
    );
    for (const row of parts.rows.children)
      row.classList.toggle("chosen", row.dataset.step === chosen);
    if (graph) graph.update(document_.steps, chosen);
    drawFailures(parts.failures, document_);
    // The server reads the children first: it draws charts from all attempts, which takes as long.
    if (document_.is_whole) charts.update(document_);
    if (actions) actions.update(document_);
    parts.setNotes([...document_.notes, ...document_.waits]);
    syncChildren(
      parts.doctor,
      document_.waiting_steps.map((step) => [step, step]),
      (step) => makeDiagnosis(run, step),
      () => {},
    );
  }

  const onHash = () => {
    const [, , id, step] = location.hash.split("/").map(decodeURIComponent);
    if (id === run && step) choose(step, false);
  };
  addEventListener("hashchange", onHash);
  const timer = setInterval(() => {
    if (document_ && document_.state === "RUNNING") drawHeader(parts, document_);
  }, 1000);
  open();
  return () => {
    removeEventListener("hashchange", onHash);
    clearInterval(timer);
    stop();
    charts.close();
    if (grid) grid.close();
  };
}

function makeParts(run) {
  const parts = {
    badge: el("span", { class: "badge" }, "…"),
    lead: el("p", { class: "lead" }, "Reading the run …"),
    facts: el("dl", { class: "facts" }),
    notes: el("ul", { class: "plain notes", role: "status", hidden: true }),
    doctor: el("div", {}),
    graph: el("div", {
      class: "scroll",
      hidden: true,
      tabindex: "0",
      role: "region",
      "aria-label": "Graph of the steps",
    }),
    rows: el("tbody"),
    children: el("section"),
    failures: el("section", { hidden: true }),
  };
  const headings = [
    "Step",
    "State",
    "Done",
    "",
    "Running",
    "Waiting",
    "Failed",
    "Attempts",
    "Rate",
    "Left",
    "Took",
    "CPU time",
    "Peak memory",
  ];
  parts.title = el("div", { class: "title" }, el("h1", {}, run), parts.badge);
  parts.nodes = [
    parts.title,
    parts.lead,
    parts.facts,
    parts.notes,
    parts.doctor,
    el(
      "section",
      {},
      el("h2", {}, "Steps"),
      parts.graph,
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of the steps" },
        el(
          "table",
          { class: "steps" },
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              ...headings.map((text, i) =>
                text ? el("th", { scope: "col", class: i < 2 ? "left" : null }, text) : el("td"),
              ),
            ),
          ),
          parts.rows,
        ),
      ),
    ),
    parts.children,
    parts.failures,
  ];
  parts.setNotes = (texts) => {
    parts.notes.hidden = !texts.length;
    syncChildren(
      parts.notes,
      texts.map((text) => [text, text]),
      (text) => el("li", {}, text),
      () => {},
    );
  };
  return parts;
}

function drawHeader(parts, run) {
  const word = run.interruption ? "INTERRUPTED" : run.state;
  setText(parts.badge, word);
  setAttribute(parts.badge, "class", `badge ${TONES[word] ?? ""}`);
  const sum = (i) => run.steps.reduce((total, step) => total + step.counts[i], 0);
  const size = run.steps.reduce((total, step) => total + step.size, 0),
    failed = sum(6),
    running = sum(3) + sum(4);
  setText(
    parts.lead,
    `${count(sum(5))} of ${plural(size, "child", "children")} succeeded` +
      (failed ? `, ${count(failed)} failed` : "") +
      (running ? `, ${count(running)} running` : "") +
      (run.interruption
        ? `. Interrupted: ${run.interruption}. \`batchyard resume ${run.run}\` continues it.`
        : "."),
  );
  const left = Math.max(0, ...run.steps.map((step) => step.left_s ?? 0));
  const facts = [
    ["Pipeline", run.pipeline],
    ["Engine", run.engine],
    ["Started", time(run.started_ms)],
    [
      "Took",
      duration(
        ((run.ended_ms ?? (run.state === "RUNNING" ? Date.now() : run.started_ms)) -
          run.started_ms) /
          1000,
      ),
    ],
    ["Ended", run.ended_ms ? time(run.ended_ms) : null],
    [
      "Expected end of the running steps",
      !run.ended_ms && left ? `${time(Date.now() + 1000 * left)} (in ${duration(left)})` : null,
    ],
    ["Retry of", run.retry_of],
    ["File", run.file],
    ["Cost", run.bill ? describeBill(run.bill) : null],
  ].filter(([, value]) => value);
  syncChildren(
    parts.facts,
    facts.map((fact) => [fact[0], fact]),
    ([name]) => el("div", {}, el("dt", {}, name), el("dd")),
    (node, [, value]) => setText(node.lastChild, value),
  );
}

function describeBill(bill) {
  const parts = [
    `${dollars(bill.paid_usd)} paid${bill.is_final ? "" : ` until ${time(bill.until_ms)}`}`,
    `${dollars(bill.used_usd)} used`,
    `${dollars(bill.idle_usd)} idle`,
    `${dollars(bill.lost_usd)} lost`,
  ];
  if (!bill.is_known) parts.push("not all is known");
  return parts.join(", ");
}

function makeStep(step, run) {
  const bar = el(
    "span",
    { class: "bar wide" },
    ...BAR.map(([name]) => el("span", { class: `part part-${name}` })),
  );
  const row = el(
    "tr",
    {},
    el(
      "th",
      { scope: "row", class: "left" },
      el(
        "a",
        { href: `#/run/${encodeURIComponent(run)}/${encodeURIComponent(step.name)}` },
        step.name,
      ),
    ),
    el("td", { class: "left" }, el("span", { class: "state" })),
    el("td"),
    el("td", { class: "left" }, bar),
    ...Array.from({ length: 9 }, () => el("td")),
  );
  row.dataset.step = step.name;
  return row;
}

function updateStep(node, step) {
  const cells = node.children,
    state = cells[1].firstChild;
  setText(state, step.state);
  setAttribute(state, "class", `state ${TONES[step.state] ?? ""}`);
  setAttribute(state, "title", step.reason || null);
  const [done, total] = step.work;
  setText(cells[2], `${count(done)} / ${count(total)}`);
  setAttribute(cells[2], "title", step.in_commands ? "commands" : "children");
  const words = [];
  BAR.forEach(([name, positions], i) => {
    const amount = positions.reduce((sum, position) => sum + step.counts[position], 0);
    cells[3].firstChild.children[i].style.width = `${step.size ? (100 * amount) / step.size : 0}%`;
    if (amount) words.push(`${count(amount)} ${name}`);
  });
  setAttribute(cells[3].firstChild, "title", words.join(", "));
  const amount = (...positions) =>
    positions.reduce((sum, position) => sum + step.counts[position], 0);
  const values = [amount(3, 4), amount(0, 1, 2), amount(6), step.attempts].map((value) =>
    value ? count(value) : "",
  );
  const end = step.ended_ms ?? Date.now();
  values.push(
    rate(step.per_s),
    step.left_s ? duration(step.left_s) : "",
    step.started_ms ? duration((end - step.started_ms) / 1000) : "",
  );
  const asked = step.requested;
  values.push(
    step.cpu_s ? duration(step.cpu_s) : "",
    step.peak_kib ? `${memory(step.peak_kib)} of ${memory(asked.memory_mib * 1024)}` : "",
  );
  setAttribute(node, "title", `a child has ${describeRequest(asked)}`);
  values.forEach((text, i) => setText(cells[4 + i], text));
  setAttribute(cells[6], "class", amount(6) ? "bad" : null);
}

/** Return a button that asks the doctor why children of a step wait, with room for the answer. */
function makeDiagnosis(run, step) {
  const answer = el("pre", {
    hidden: true,
    tabindex: "0",
    "aria-label": `Why ${step} waits`,
    role: "region",
  });
  const button = el(
    "button",
    {
      type: "button",
      onclick: async () => {
        button.disabled = true;
        answer.hidden = false;
        answer.textContent = "Asking AWS …";
        try {
          answer.textContent = (await (await get("/api/doctor", { run, step })).text()).trimEnd();
        } catch (error) {
          answer.textContent = error.message;
        }
        button.disabled = false;
      },
    },
    `Ask the doctor why ${step} waits`,
  );
  return el("article", { class: "doctor" }, el("p", { class: "again" }, button), answer);
}

function describeRequest({ vcpus, memory_mib, gpus }) {
  const parts = [plural(vcpus, "vCPU"), memory(memory_mib * 1024)];
  if (gpus) parts.push(plural(gpus, "GPU"));
  return parts.join(", ");
}

function mostInteresting(steps) {
  const running = steps.find((step) => step.counts[3] + step.counts[4] && step.size > 1);
  const failed = steps.find((step) => step.counts[6] && step.attempts);
  return (running ?? failed ?? steps.reduce((a, b) => (b.size > a.size ? b : a))).name;
}

function drawFailures(section, run) {
  section.hidden = !run.failures.length;
  if (section.hidden) return;
  if (!section.list) {
    section.list = el("div");
    section.more = el("p", { class: "note" });
    section.append(
      el("h2", {}, "Failures"),
      section.list,
      section.more,
      el("p", {}, "To run what failed or never ran: ", commandLine(`batchyard retry ${run.run}`)),
    );
  }
  setText(
    section.more,
    run.more_failures ? `and ${plural(run.more_failures, "more kind")} of failures` : "",
  );
  syncChildren(
    section.list,
    run.failures.map((group) => [`${group.step} ${group.exit_code} ${group.reason}`, group]),
    (group) => makeFailure(run.run, group),
    updateFailure,
  );
}

function makeFailure(run, group) {
  const parts = [run, group.step, group.index, group.attempt];
  const log = `#/log/${parts.map(encodeURIComponent).join("/")}`;
  const tail = el("pre", { hidden: true });
  const article = el(
    "article",
    {},
    el(
      "header",
      {},
      el("h3", {}, ""),
      el("p", {}, group.reason),
      el(
        "p",
        { class: "numbers" },
        group.attempt
          ? el("a", { href: log }, `${group.step}:${group.index}, attempt ${group.attempt}`)
          : "",
      ),
    ),
    tail,
    group.attempt
      ? el(
          "p",
          { class: "again" },
          commandLine(`batchyard retry ${run} ${group.step}:${group.index}`),
        )
      : null,
  );
  if (group.attempt) loadTail(tail, run, group);
  return article;
}

function updateFailure(node, group) {
  setText(
    node.querySelector("h3"),
    `${plural(group.children, "child", "children")} of ${group.step}`,
  );
}

async function loadTail(node, run, group) {
  try {
    const answer = await get("/api/log", {
      run,
      step: group.step,
      index: group.index,
      attempt: group.attempt,
    });
    const text = (await answer.text()).trimEnd().split("\n").slice(-TAIL_LINES).join("\n");
    node.replaceChildren(...readAnsi(text));
  } catch (error) {
    node.textContent = error.message;
  }
  node.hidden = !node.textContent;
}
