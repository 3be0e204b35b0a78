// Elements made from values. Texts are text nodes: what a run has written is never markup.

/** Return an element. `attributes`: on* are listeners, true is an empty attribute, null none. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Return an SVG element. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Change a text only if it differs, so that a selection or a screen reader is not disturbed. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/** Make a child of each [key, value], and keep it; `make` and `update` get the value. */
export function syncChildren(parent, entries, make, update) {
  const known = parent.keyedChildren ?? (parent.keyedChildren = new Map());
  const wanted = new Set(entries.map(([key]) => key));
  for (const [key, node] of known) {
    if (!wanted.has(key)) {
      node.remove();
      known.delete(key);
    }
  }
  let place = parent.firstElementChild;
  for (const [key, value] of entries) {
    let node = known.get(key);
    if (!node) known.set(key, (node = make(value)));
    update(node, value);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
}

/** Return a button that copies a command, beside the command. */
export function commandLine(text) {
  const button = el(
    "button",
    { type: "button", class: "copy", "aria-label": `Copy: ${text}` },
    "Copy",
  );
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return el("span", { class: "command" }, el("code", {}, text), button);
}
