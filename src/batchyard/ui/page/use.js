// What the attempts of a child have used, which the server draws with the code of `batchyard report`.

import { el } from "./dom.js";

const LIVE_MS = 4000;

export class ChildUse {
  constructor(child) {
    this.child = child;
    this.node = el("div", { class: "child-use" });
    this.loadedAt = 0;
  }

  /** Load the charts anew: at once, or if they are some seconds old. */
  update(atOnce) {
    if (!atOnce && Date.now() - this.loadedAt < LIVE_MS) return;
    this.loadedAt = Date.now();
    // A document that the browser has parsed is not markup in a text, which the page forbids itself.
    if (this.request) this.request.abort();
    const request = (this.request = new XMLHttpRequest());
    request.open("GET", `/api/use?${new URLSearchParams(this.child)}`);
    request.responseType = "document";
    request.onload = () => {
      if (request.status !== 200 || !request.responseXML) return;
      const nodes = [...request.responseXML.querySelectorAll("main > *")];
      this.node.replaceChildren(...nodes.map((node) => document.importNode(node, true)));
    };
    request.send();
  }

  close() {
    if (this.request) this.request.abort();
  }
}
