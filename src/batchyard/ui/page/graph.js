// The steps of a run as a graph: boxes in columns, each to the right of the steps that it needs.

import { plural } from "./amounts.js";
import { setAttribute, setText, svg } from "./dom.js";

const WIDTH = 150,
  HEIGHT = 44,
  GAP_X = 46,
  GAP_Y = 14,
  MAX_STEPS = 150;

export class Graph {
  constructor(steps, onChoose) {
    this.boxes = new Map();
    const places = layOut(steps);
    const columns = Math.max(...places.map((place) => place.column)) + 1;
    const rows = Math.max(...places.map((place) => place.row)) + 1;
    const width = columns * (WIDTH + GAP_X) - GAP_X + 4,
      height = rows * (HEIGHT + GAP_Y) - GAP_Y + 4;
    const byName = new Map(places.map((place) => [place.step.name, place]));
    const edges = places.flatMap((place) =>
      place.step.needs
        .filter((name) => byName.has(name))
        .map((name) => drawEdge(byName.get(name), place)),
    );
    this.node = svg(
      "svg",
      {
        class: "graph",
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        role: "group",
        "aria-label": "Steps and what they need",
      },
      ...edges,
      ...places.map((place) => this.makeBox(place, onChoose)),
    );
  }

  static fits(steps) {
    return steps.length > 1 && steps.length <= MAX_STEPS;
  }

  makeBox({ step, column, row }, onChoose) {
    const x = column * (WIDTH + GAP_X) + 2,
      y = row * (HEIGHT + GAP_Y) + 2;
    const good = svg("rect", { class: "part part-succeeded", x, y: y + HEIGHT - 5, height: 5 });
    const bad = svg("rect", { class: "part part-failed", y: y + HEIGHT - 5, height: 5 });
    const note = svg("text", { x: x + 10, y: y + 33, class: "small" });
    const choose = () => onChoose(step.name);
    const box = svg(
      "g",
      {
        class: "box",
        tabindex: "0",
        role: "button",
        onclick: choose,
        onkeydown: (event) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            choose();
          }
        },
      },
      svg("rect", { class: "frame", x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
      good,
      bad,
      svg("text", { x: x + 10, y: y + 18, class: "name" }, shorten(step.name)),
      note,
    );
    this.boxes.set(step.name, { box, good, bad, note, x });
    return box;
  }

  update(steps, chosen) {
    for (const step of steps) {
      const { box, good, bad, note, x } = this.boxes.get(step.name);
      const [done, total, failed] = step.work,
        part = (amount) => (total ? (WIDTH * amount) / total : 0);
      setAttribute(good, "width", part(Math.max(0, done - failed)));
      setAttribute(bad, "x", x + part(Math.max(0, done - failed)));
      setAttribute(bad, "width", part(failed));
      setText(
        note,
        `${step.state.toLowerCase()} · ${Math.floor(total ? (100 * done) / total : 0)} %`,
      );
      setAttribute(
        box,
        "class",
        `box box-${step.state.toLowerCase()}${step.name === chosen ? " chosen" : ""}`,
      );
      setAttribute(box, "aria-pressed", step.name === chosen);
      setAttribute(
        box,
        "aria-label",
        `Step ${step.name}: ${step.state.toLowerCase()}, ${done} of ${countWork(step)} done`,
      );
    }
  }
}

function layOut(steps) {
  const columns = new Map(),
    heights = [];
  return steps.map((step) => {
    // a step follows those that it needs
    const column = Math.max(
      0,
      ...step.needs.filter((name) => columns.has(name)).map((name) => columns.get(name) + 1),
    );
    columns.set(step.name, column);
    const row = heights[column] ?? 0;
    heights[column] = row + 1;
    return { step, column, row };
  });
}

function drawEdge(from, to) {
  const x1 = from.column * (WIDTH + GAP_X) + 2 + WIDTH,
    y1 = from.row * (HEIGHT + GAP_Y) + 2 + HEIGHT / 2;
  const x2 = to.column * (WIDTH + GAP_X) + 2,
    y2 = to.row * (HEIGHT + GAP_Y) + 2 + HEIGHT / 2;
  const bend = Math.min(GAP_X, (x2 - x1) / 2);
  return svg("path", {
    class: "edge",
    d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
  });
}

const shorten = (name) => (name.length <= 18 ? name : `${name.slice(0, 9)}…${name.slice(-8)}`);

function countWork(step) {
  const total = step.work[1];
  return step.in_commands ? plural(total, "command") : plural(total, "child", "children");
}
