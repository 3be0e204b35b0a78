// The page: which view is shown, from the part of the address behind #. Each view has an address.

import { el } from "./dom.js";
import { getJson } from "./live.js";
import { showRuns } from "./runs.js";
import { showRun } from "./run.js";
import { showLog } from "./log.js";
import { showComparison } from "./compare.js";

const view = document.getElementById("view");
const trail = document.getElementById("trail");
let leave = null;

// The token of the first address is in the cookie now, and must not stay in the history.
if (location.search) history.replaceState(null, "", `/${location.hash}`);

export const address = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

/** Return the parts of the address behind #; none of one that was cut, and so is not known. */
function readParts() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  try {
    return parts.map(decodeURIComponent);
  } catch {
    return [];
  }
}

function setTrail(...links) {
  trail.replaceChildren(
    ...links.flatMap(([text, target]) => [" / ", target ? el("a", { href: target }, text) : text]),
  );
}

function route(about) {
  const parts = readParts();
  if (leave) leave();
  view.replaceChildren();
  const [kind, ...rest] = parts;
  let title = "runs";
  if (kind === "run" && rest.length >= 1) {
    setTrail([rest[0]]);
    title = rest[0];
    leave = showRun(view, about, rest[0], rest[1]);
  } else if (kind === "log" && rest.length >= 3) {
    const [run, step, index, attempt] = rest;
    setTrail([run, address("run", run, step)], [`${step}:${index}`]);
    title = `${step}:${index} of ${run}`;
    leave = showLog(view, about, run, step, Number(index), attempt ? Number(attempt) : null);
  } else if (kind === "compare" && rest.length === 2) {
    setTrail(["comparison"]);
    title = "comparison";
    leave = showComparison(view, rest[0], rest[1]);
  } else {
    setTrail(["runs"]);
    leave = showRuns(view, about);
  }
  document.title = `${title} - batchyard`;
}

function isSameRun(a, b) {
  const run = (text) => new URL(text).hash.match(/^#\/run\/([^/]+)/)?.[1];
  return run(a) !== undefined && run(a) === run(b);
}

async function start() {
  let about;
  try {
    about = await getJson("/api/about");
  } catch (error) {
    view.replaceChildren(el("p", { class: "bad" }, error.message));
    return;
  }
  addEventListener("hashchange", (event) => {
    // Another step of the same run: the view does that itself.
    if (isSameRun(event.oldURL, event.newURL)) return;
    route(about);
    view.focus();
  });
  route(about);
}

start();
