// The charts of a run, which the server draws with the code of `batchyard report`.

import { el, setText } from "./dom.js";

const LIVE_MS = 5000;

export class Charts {
  constructor(run) {
    this.run = run;
    this.place = el("div", { class: "charts" });
    this.note = el("p", { class: "note", role: "status" });
    this.node = el("section", { "aria-label": "Charts" }, this.place, this.note);
    this.loadedAt = 0;
    this.state = null;
  }

  /** Load the charts anew if the run has changed: every few seconds, and when it is over. */
  update(run) {
    const hasEnded = run.state !== "RUNNING" && this.state !== run.state;
    const isDue = run.state === "RUNNING" && Date.now() - this.loadedAt > LIVE_MS;
    if (!hasEnded && !isDue) return;
    this.state = run.state;
    this.loadedAt = Date.now();
    this.load();
  }

  // A document that the browser has parsed is not markup in a text, which the page forbids itself.
  load() {
    if (this.request) this.request.abort();
    const request = (this.request = new XMLHttpRequest());
    const query = new URLSearchParams({ run: this.run, state: this.state });
    request.open("GET", `/api/charts?${query}`);
    request.responseType = "document";
    request.onload = () => {
      if (request.status !== 200 || !request.responseXML) {
        setText(this.note, "The charts could not be drawn.");
        this.state = null; // again with the next state of the run
        return;
      }
      const nodes = [...request.responseXML.querySelectorAll("body > svg, main > *")];
      this.place.replaceChildren(...nodes.map((node) => document.importNode(node, true)));
      for (const region of this.place.querySelectorAll(".scroll")) {
        region.tabIndex = 0;
        region.setAttribute("role", "region");
        region.setAttribute("aria-label", nameRegion(region));
      }
      setText(this.note, "");
    };
    request.onerror = () => {
      setText(this.note, "");
      this.state = null;
    };
    request.send();
  }

  close() {
    if (this.request) this.request.abort();
  }
}

/** Return the name of a chart or table: the headings that it is below. */
function nameRegion(region) {
  const names = [region.closest("section").querySelector("h2").textContent];
  for (let node = region.previousElementSibling; node; node = node.previousElementSibling) {
    if (node.tagName !== "H3") continue;
    names.push(node.textContent);
    break;
  }
  return `Chart: ${names.join(", ")}`;
}
