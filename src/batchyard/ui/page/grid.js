// The children of a step as one canvas: a pixel or a square each.

import { count, duration, memory, plural } from "./amounts.js";
import { Children } from "./children.js";
import { el, setText } from "./dom.js";
import { getJson } from "./live.js";
import { CHILD_STATES, colourOf } from "./states.js";

const MAX_HEIGHT = 440,
  MAX_CELL = 22,
  HOVER_MS = 120;
const STATE_COLOURS = ["--waiting", "--busy", "--good", "--bad", "--warn", "--never"];
const CODE_COLOURS = ["--c1", "--c3", "--c5", "--c4", "--c7", "--c2", "--c0"];
const FILTERS = {
  all: () => true,
  failed: (state) => state === 3 || state === 5,
  running: (state) => state === 1,
  waiting: (state) => state === 0 || state === 4,
  succeeded: (state) => state === 2,
  retried: (state, attempts) => attempts > 1 || state === 4,
};

export class Grid {
  constructor(run, step) {
    this.run = run;
    this.step = step;
    this.children = new Children();
    this.shown = null; // positions, of a filter; null: all
    this.selected = null; // a place in what is shown
    this.commands = new Map();
    this.canvas = el("canvas", {
      tabindex: "0",
      role: "application",
      class: "grid",
      "aria-describedby": "grid-help grid-child",
      onmousemove: (event) => this.hover(event),
      onmouseleave: () => this.select(null),
      onclick: (event) => {
        this.hover(event);
        this.open();
      },
      onkeydown: (event) => this.onKey(event),
      onfocus: () => {
        if (this.selected === null) this.select(0);
      },
    });
    this.picture = document.createElement("canvas");
    this.mark = el("div", { class: "cell-mark", hidden: true });
    this.colour = this.makeSelect("colour", [
      "state",
      "attempts",
      "seconds",
      "exit code",
      "memory",
    ]);
    this.filter = this.makeSelect("filter", Object.keys(FILTERS));
    this.jump = el("input", {
      type: "number",
      min: "0",
      id: "jump",
      inputmode: "numeric",
      onchange: () => this.jumpTo(Number(this.jump.value)),
    });
    this.legend = el("ul", { class: "legend" });
    this.about = el("div", {
      class: "child",
      id: "grid-child",
      role: "status",
      "aria-live": "polite",
    });
    this.node = el(
      "div",
      {},
      el(
        "div",
        { class: "tools" },
        el("label", { for: "colour" }, "Colour ", this.colour),
        el("label", { for: "filter" }, "Show ", this.filter),
        el("label", { for: "jump" }, "Go to child ", this.jump),
      ),
      el("div", { class: "canvas" }, this.canvas, this.mark),
      this.legend,
      el(
        "p",
        { class: "note", id: "grid-help" },
        "Each square is a child: move over it, or use the arrow keys. Click or Enter: its log.",
      ),
      this.about,
    );
    this.resizing = new ResizeObserver(() => this.draw());
    this.resizing.observe(this.node);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.onScheme = () => this.draw();
    this.dark.addEventListener("change", this.onScheme);
  }

  makeSelect(id, words) {
    return el(
      "select",
      {
        id,
        onchange: () => {
          this.select(null);
          this.draw();
        },
      },
      ...words.map((word) => el("option", {}, word)),
    );
  }

  take(event) {
    this.children.take(event);
    this.schedule();
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  close() {
    this.resizing.disconnect();
    this.dark.removeEventListener("change", this.onScheme);
    cancelAnimationFrame(this.frame);
  }

  // -- drawing

  draw() {
    const width = Math.floor(this.canvas.parentElement.clientWidth);
    if (!width) return;
    this.applyFilter();
    const total = this.total();
    this.cell = chooseCell(total, width);
    this.columns = Math.max(1, Math.min(total || 1, Math.floor(width / this.cell)));
    const rows = Math.max(1, Math.ceil(total / this.columns));
    this.paint(rows);
    const ratio = devicePixelRatio || 1;
    const cellPixels = Math.max(1, Math.round(this.cell * ratio));
    this.canvas.width = this.columns * cellPixels;
    this.canvas.height = rows * cellPixels;
    this.canvas.style.width = `${this.columns * this.cell}px`;
    this.canvas.style.height = `${rows * this.cell}px`;
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, 0, 0, this.canvas.width, this.canvas.height);
    if (this.cell >= 5)
      cutGaps(context, this.columns, rows, cellPixels, Math.max(1, Math.round(ratio)));
    this.canvas.setAttribute(
      "aria-label",
      `Children of ${this.step}: ${plural(total, "child", "children")}`,
    );
    if (this.selected !== null) this.select(Math.min(this.selected, total - 1));
  }

  applyFilter() {
    const test = FILTERS[this.filter.value],
      children = this.children;
    if (this.filter.value === "all") {
      this.shown = null;
      return;
    }
    const shown = [];
    for (let i = 0; i < children.size; i++)
      if (test(children.state(i), children.attempts(i))) shown.push(i);
    this.shown = shown;
  }

  total() {
    return this.shown ? this.shown.length : this.children.size;
  }
  position(place) {
    return this.shown ? this.shown[place] : place;
  }

  paint(rows) {
    const total = this.total();
    this.picture.width = this.columns;
    this.picture.height = rows;
    const context = this.picture.getContext("2d");
    const image = context.createImageData(this.columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const colourAt = this.makeColours();
    for (let place = 0; place < total; place++) pixels[place] = colourAt(this.position(place));
    context.putImageData(image, 0, 0);
  }

  /** Return a function from a child to its colour, and write the legend of these colours. */
  makeColours() {
    const children = this.children,
      kind = this.colour.value;
    const states = STATE_COLOURS.map((name) => pack(colourOf(name)));
    if (kind === "state") {
      this.setLegend(this.countStates());
      return (position) => states[children.state(position)];
    }
    if (kind === "exit code") return this.makeCodeColours(states[0]);
    const value = {
      attempts: (p) => children.attempts(p),
      seconds: (p) => children.seconds(p),
      memory: (p) => children.memory(p),
    }[kind];
    const text = { attempts: count, seconds: duration, memory }[kind];
    return this.makeRamp(value, text, states[0]);
  }

  countStates() {
    const counts = new Array(CHILD_STATES.length).fill(0);
    for (let i = 0; i < this.children.size; i++) counts[this.children.state(i)]++;
    return CHILD_STATES.map((word, i) => [
      STATE_COLOURS[i],
      `${word}: ${count(counts[i])}`,
      counts[i],
    ])
      .filter((entry) => entry[2])
      .map(([name, words]) => [colourOf(name), words]);
  }

  makeCodeColours(none) {
    const children = this.children,
      counts = new Map();
    for (let i = 0; i < children.size; i++) {
      if (children.state(i) < 2) continue;
      counts.set(children.exitCode(i), (counts.get(children.exitCode(i)) ?? 0) + 1);
    }
    const codes = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
    const names = new Map([
      [0, "--good"],
      [-1, "--never"],
    ]);
    for (const code of codes)
      if (!names.has(code)) names.set(code, CODE_COLOURS[(names.size - 2) % CODE_COLOURS.length]);
    this.setLegend(
      codes
        .slice(0, 9)
        .map((code) => [
          colourOf(names.get(code)),
          `${code === -1 ? "no exit code" : code}: ${count(counts.get(code))}`,
        ]),
    );
    const packed = new Map([...names].map(([code, name]) => [code, pack(colourOf(name))]));
    return (position) =>
      children.state(position) < 2 ? none : packed.get(children.exitCode(position));
  }

  makeRamp(value, text, none) {
    const children = this.children;
    let low = Infinity,
      high = 0;
    for (let i = 0; i < children.size; i++) {
      const amount = value(i);
      if (amount > 0) {
        low = Math.min(low, amount);
        high = Math.max(high, amount);
      }
    }
    const from = colourOf("--ramp-low"),
      to = colourOf("--ramp-high");
    const span = Math.log(high / low) || 1;
    const ramp = Array.from({ length: 65 }, (_, i) => mix(from, to, i / 64));
    const steps = high > 0 ? (high > low ? [0, 0.5, 1] : [0]) : [];
    this.setLegend([
      [colourOf("--waiting"), "none yet"],
      ...steps.map((part) => [
        mix(from, to, part),
        text(Number((low * Math.exp(part * span)).toPrecision(2))),
      ]),
    ]);
    const packed = ramp.map(pack);
    return (position) => {
      const amount = value(position);
      return amount > 0 ? packed[Math.round((64 * Math.log(amount / low)) / span)] : none;
    };
  }

  setLegend(entries) {
    const words = entries.map(([colour, text]) => `${colour} ${text}`).join();
    if (words === this.legendWords) return;
    this.legendWords = words;
    this.legend.replaceChildren(
      ...entries.map(([colour, text]) => {
        const swatch = el("span", { class: "swatch" });
        swatch.style.background = `rgb(${colour.map(Math.round).join(",")})`;
        return el("li", {}, swatch, text);
      }),
    );
  }

  // -- one child

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.cell),
      row = Math.floor((event.clientY - box.top) / this.cell);
    const place = row * this.columns + column;
    const isInside = column >= 0 && column < this.columns && place >= 0 && place < this.total();
    this.select(isInside ? place : null);
  }

  onKey(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    const now = this.selected ?? 0;
    let place = null;
    if (event.key in steps) place = now + steps[event.key];
    else if (event.key === "Home") place = 0;
    else if (event.key === "End") place = this.total() - 1;
    else if (event.key === "Enter") {
      this.open();
      event.preventDefault();
      return;
    }
    if (place === null) return;
    event.preventDefault();
    if (place >= 0 && place < this.total()) this.select(place);
  }

  jumpTo(index) {
    const position = this.children.positionOf(index);
    if (position === null) {
      setText(this.about, `There is no child ${index}.`);
      return;
    }
    this.filter.value = "all";
    this.draw();
    this.select(position);
    this.canvas.focus();
  }

  open() {
    if (this.selected === null) return;
    const index = this.children.index(this.position(this.selected));
    location.hash = `#/log/${[this.run, this.step, index].map(encodeURIComponent).join("/")}`;
  }

  select(place) {
    this.selected = place !== null && place >= 0 && place < this.total() ? place : null;
    this.mark.hidden = this.selected === null;
    if (this.selected === null) {
      clearTimeout(this.timer);
      return;
    }
    const size = Math.max(this.cell, 6),
      offset = (size - this.cell) / 2;
    this.mark.style.width = this.mark.style.height = `${size}px`;
    this.mark.style.left = `${(this.selected % this.columns) * this.cell - offset}px`;
    this.mark.style.top = `${Math.floor(this.selected / this.columns) * this.cell - offset}px`;
    this.describe(this.position(this.selected));
  }

  describe(position) {
    const children = this.children,
      index = children.index(position);
    const parts = [`${this.step}:${index}`, CHILD_STATES[children.state(position)]];
    if (children.attempts(position)) {
      parts.push(
        plural(children.attempts(position), "attempt"),
        duration(children.seconds(position)),
      );
      if (children.exitCode(position) !== -1)
        parts.push(`exit code ${children.exitCode(position)}`);
      if (children.memory(position)) parts.push(memory(children.memory(position)));
    }
    const command = this.commands.get(index);
    this.about.replaceChildren(
      el("p", {}, parts.join(" · ")),
      el("pre", { class: "line" }, command ?? ""),
    );
    clearTimeout(this.timer);
    if (command === undefined)
      this.timer = setTimeout(() => this.loadCommand(index, position), HOVER_MS);
  }

  async loadCommand(index, position) {
    let text;
    try {
      const child = await getJson("/api/child", { run: this.run, step: this.step, index });
      text = child.commands.map((command) => command.text).join("\n");
      if (child.more_commands) text += `\nand ${plural(child.more_commands, "more command")}`;
    } catch (error) {
      text = error.message;
    }
    if (this.commands.size > 2000) this.commands.clear();
    this.commands.set(index, text);
    if (this.selected !== null && this.position(this.selected) === position)
      this.describe(position);
  }
}

/** Return the size of a square in pixels, such that all fit. */
export function chooseCell(total, width) {
  for (let cell = MAX_CELL; cell > 1; cell--) {
    if (Math.ceil(total / Math.floor(width / cell)) * cell <= MAX_HEIGHT) return cell;
  }
  return 1;
}

function cutGaps(context, columns, rows, cell, gap) {
  for (let x = 1; x <= columns; x++) context.clearRect(x * cell - gap, 0, gap, rows * cell);
  for (let y = 1; y <= rows; y++) context.clearRect(0, y * cell - gap, columns * cell, gap);
}

const mix = (a, b, part) => a.map((value, i) => value + (b[i] - value) * part);
// Pixels of a canvas are red, green, blue, alpha from the lowest byte up.
const pack = ([r, g, b]) =>
  ((255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0;
