// Text with escape codes of terminals as nodes. Colours are shown, all else is left out.

// CSI sequences, OSC sequences (titles, links), and other escapes of two characters.
const ESCAPE = new RegExp(
  [
    "\x1b\\[([0-?]*)([ -/]*[@-~])",
    "\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?",
    "\x1b[@-Z\\\\^_]?",
    "[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]",
  ].join("|"),
  "g",
);

export class AnsiReader {
  constructor() {
    this.reset();
  }

  reset() {
    this.classes = new Set();
    this.colours = {};
  }

  /** Return nodes for a text; the colours at its end go on in the next one. */
  read(text) {
    const nodes = [];
    let last = 0;
    text = dropOverwritten(text);
    for (const match of text.matchAll(ESCAPE)) {
      this.push(nodes, text.slice(last, match.index));
      last = match.index + match[0].length;
      if (match[2] === "m") this.apply(match[1].split(/[;:]/).map(Number));
    }
    this.push(nodes, text.slice(last));
    return nodes;
  }

  push(nodes, text) {
    if (!text) return;
    const { ink, paper } = this.colours;
    if (!this.classes.size && !ink && !paper) {
      nodes.push(document.createTextNode(text));
      return;
    }
    const span = document.createElement("span");
    span.className = [...this.classes].join(" ");
    if (ink) span.style.color = ink;
    if (paper) span.style.backgroundColor = paper;
    span.textContent = text;
    nodes.push(span);
  }

  apply(codes) {
    for (let i = 0; i < codes.length; i++) {
      const code = codes[i];
      if (code === 0) this.reset();
      else if (code === 38 || code === 48)
        i += this.setColour(code === 38 ? "ink" : "paper", codes.slice(i + 1));
      else this.applyOne(code);
    }
  }

  applyOne(code) {
    const styles = { 1: "b", 2: "dim", 3: "i", 4: "u", 9: "s" };
    if (styles[code]) this.classes.add(styles[code]);
    else if (code === 22) {
      this.classes.delete("b");
      this.classes.delete("dim");
    } else if (code >= 23 && code <= 29) this.classes.delete({ 23: "i", 24: "u", 29: "s" }[code]);
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97))
      this.setClass("f", code >= 90 ? code - 82 : code - 30);
    else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107))
      this.setClass("g", code >= 100 ? code - 92 : code - 40);
    else if (code === 39) this.setClass("f", null);
    else if (code === 49) this.setClass("g", null);
  }

  /** Set one of the 16 colours of a terminal, whose classes are in the style sheet. */
  setClass(kind, number) {
    for (const name of [...this.classes])
      if (name.length > 1 && name[0] === kind) this.classes.delete(name);
    this.colours[kind === "f" ? "ink" : "paper"] = null;
    if (number !== null) this.classes.add(`${kind}${number}`);
  }

  /** Set a colour of 256, or of 16 million; return how many codes were used. */
  setColour(name, [kind, ...rest]) {
    const kinds = name === "ink" ? "f" : "g";
    if (kind === 5 && rest[0] >= 0 && rest[0] < 16) {
      this.setClass(kinds, rest[0]);
      return 2;
    }
    const [r, g, b] = kind === 5 ? paletteColour(rest[0]) : rest;
    if (![r, g, b].every((value) => value >= 0 && value <= 255)) return kind === 2 ? 4 : 2;
    this.setClass(kinds, null);
    this.colours[name] = `rgb(${r}, ${g}, ${b})`;
    return kind === 2 ? 4 : 2;
  }
}

export const readAnsi = (text) => new AnsiReader().read(text);

/** Keep of each line what a terminal shows after carriage returns, as progress bars write them. */
function dropOverwritten(text) {
  if (!text.includes("\r")) return text;
  return text.split("\n").map(lastWritten).join("\n");
}

// By position, not by a pattern: the time for a pattern grows with the square of a line's length.
function lastWritten(line) {
  let end = line.length;
  while (end && line[end - 1] === "\r") end--;
  return line.slice(line.lastIndexOf("\r", end - 1) + 1, end);
}

function paletteColour(number) {
  if (number >= 232) return Array(3).fill(8 + (number - 232) * 10);
  const value = number - 16,
    level = (n) => (n ? 55 + 40 * n : 0);
  return [level(Math.floor(value / 36)), level(Math.floor(value / 6) % 6), level(value % 6)];
}
