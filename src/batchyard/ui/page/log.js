// The log of a child. Only a part of it is in the browser: the log may have gigabytes.

import { bytes, count, duration, memory, plural, time } from "./amounts.js";
import { AnsiReader } from "./ansi.js";
import { commandLine, el, setText } from "./dom.js";
import { NO_SERVER, follow, get, getJson, sayConnection } from "./live.js";
import { ChildUse } from "./use.js";

const PART = 256 * 1024,
  MAX_TEXT = 4 * PART,
  POLL_MS = 1000,
  // Reads after the end of the run: its last output may be there later than its state.
  LAST_READS = 3;

export function showLog(view, about, run, step, index, wantedAttempt) {
  const child = { run, step, index };
  let attempt = wantedAttempt,
    begin = 0,
    end = 0,
    size = 0,
    isOver = false,
    isBusy = false,
    wish = null, // what the user has asked for while something was read
    timer = null;
  let reader = new AnsiReader(),
    decoder = new TextDecoder();
  let places = [],
    place = -1,
    searched = "",
    nextSearch = null;

  const text = el("pre", {
    class: "log",
    tabindex: "0",
    role: "log",
    "aria-label": `Output of ${step}:${index}`,
    "aria-live": "off",
    onscroll: onScroll,
  });
  const attempts = el("select", {
    id: "attempt",
    onchange: () => restart(Number(attempts.value)),
  });
  const followBox = el("input", {
    type: "checkbox",
    id: "follow",
    checked: true,
    onchange: () => {
      if (followBox.checked) toEnd();
    },
  });
  const wrapBox = el("input", {
    type: "checkbox",
    id: "wrap",
    onchange: () => text.classList.toggle("wrap", wrapBox.checked),
  });
  const search = el("input", {
    type: "search",
    id: "log-search",
    onkeydown: (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        find(event.shiftKey ? -1 : 1);
      }
    },
  });
  const found = el("span", { role: "status", class: "note" });
  const download = el("a", { class: "button", download: true }, "Download");
  const where = el("p", { class: "note", role: "status" }, "Reading …");
  const details = el("section", {});
  const use = new ChildUse(child);
  view.append(
    el("h1", {}, `${step}:${index}`),
    el("p", { class: "lead" }, run),
    details,
    use.node,
    el(
      "div",
      { class: "tools" },
      el("label", { for: "attempt" }, "Attempt ", attempts),
      el("label", { for: "follow" }, followBox, " follow"),
      el("label", { for: "wrap" }, wrapBox, " wrap lines"),
      el("label", { for: "log-search" }, "Search ", search),
      el("button", { type: "button", onclick: () => find(-1) }, "Previous"),
      el("button", { type: "button", onclick: () => find(1) }, "Next"),
      found,
      el("button", { type: "button", onclick: toBegin }, "To the start"),
      el("button", { type: "button", onclick: toEnd }, "To the end"),
      download,
    ),
    text,
    where,
  );

  // -- reading parts

  async function read(from) {
    const parameters = {
      ...child,
      ...(attempt === null ? {} : { attempt }),
      ...(from === null ? {} : { begin: from }),
    };
    const answer = await get("/api/log", parameters);
    const data = new Uint8Array(await answer.arrayBuffer());
    size = Number(answer.headers.get("X-Log-Size"));
    attempt = Number(answer.headers.get("X-Log-Attempt"));
    setAttempts(answer.headers.get("X-Log-Attempts").split(",").filter(Boolean).map(Number));
    return { data, from: Number(answer.headers.get("X-Log-Begin")) };
  }

  /** Show a part as the only one. */
  async function show(from) {
    const part = await read(from);
    reader = new AnsiReader();
    decoder = new TextDecoder();
    let data = part.data;
    begin = part.from;
    if (begin > 0) {
      // from the beginning of a line
      const line = data.indexOf(10) + 1;
      data = data.subarray(line);
      begin += line;
    }
    end = begin + data.length;
    text.replaceChildren(...reader.read(decoder.decode(data, { stream: true })));
    describe();
  }

  async function append() {
    const part = await read(end);
    if (!part.data.length) {
      describe();
      return;
    }
    const isAtEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 40;
    text.append(...reader.read(decoder.decode(part.data, { stream: true })));
    end += part.data.length;
    if (end - begin > MAX_TEXT) {
      await show(Math.max(0, size - PART));
      toBottom();
    } else if (followBox.checked && isAtEnd) toBottom();
    describe();
  }

  async function prepend() {
    const from = Math.max(0, begin - PART + 1024),
      oldBegin = begin,
      height = text.scrollHeight;
    const until = end;
    await show(from);
    while (end < Math.min(until, begin + MAX_TEXT) && end < size) {
      const part = await read(end);
      text.append(...reader.read(decoder.decode(part.data, { stream: true })));
      end += part.data.length;
    }
    if (begin < oldBegin) text.scrollTop = text.scrollHeight - height;
    describe();
  }

  async function guard(action) {
    if (isBusy || isOver) return;
    isBusy = true;
    try {
      await action();
      sayConnection("live", "good");
    } catch (error) {
      if (error instanceof TypeError) sayConnection(NO_SERVER, "bad");
      else setText(where, error.message);
    } finally {
      isBusy = false;
      const action = wish;
      wish = null;
      if (action) guard(action);
    }
  }

  /** Do what the user asks for: at once, or after what is being read. The last wish counts. */
  function ask(action) {
    if (isBusy) wish = action;
    else guard(action);
  }

  function setAttempts(numbers) {
    const wanted = numbers.length ? numbers : [attempt];
    if (wanted.join() === [...attempts.options].map((option) => option.value).join()) return;
    attempts.replaceChildren(
      ...wanted.map((number) => el("option", { value: number }, String(number))),
    );
    attempts.value = String(attempt);
    download.href = `/api/log-file?${new URLSearchParams({ ...child, attempt })}`;
  }

  function describe() {
    const part = begin > 0 || end < size ? `${bytes(end - begin)} of ` : "";
    setText(
      where,
      size
        ? `${part}${bytes(size)}${begin > 0 ? "; scroll up for earlier output" : ""}`
        : "No output yet.",
    );
  }

  // -- moving

  function toBottom() {
    text.scrollTop = text.scrollHeight;
  }
  function toEnd() {
    ask(async () => {
      if (end < size || begin > size - PART) await show(null);
      toBottom();
    });
  }
  function toBegin() {
    followBox.checked = false;
    ask(async () => {
      if (begin > 0) await show(0);
      text.scrollTop = 0;
    });
  }
  function onScroll() {
    if (text.scrollTop < 40 && begin > 0) guard(prepend);
    else if (end < size && text.scrollTop + text.clientHeight > text.scrollHeight - 40)
      guard(append);
  }
  function restart(chosen) {
    ask(async () => {
      attempt = chosen;
      places = [];
      searched = "";
      download.href = `/api/log-file?${new URLSearchParams({ ...child, attempt })}`;
      await show(null);
      toBottom();
    });
  }

  // -- searching

  function find(direction) {
    if (search.value) ask(() => findNext(direction));
  }

  async function findNext(direction) {
    if (search.value !== searched) {
      searched = search.value;
      places = [];
      place = -1;
      nextSearch = 0;
    }
    // Each request searches a part of the log, so that no request takes long.
    while (
      nextSearch !== null &&
      place + direction >= places.length &&
      search.value === searched &&
      !isOver
    ) {
      await searchMore();
      if (nextSearch !== null) setText(found, `searched ${bytes(nextSearch)} of ${bytes(size)}`);
    }
    if (!places.length) {
      setText(found, nextSearch === null ? "not found" : "");
      return;
    }
    place = (place + direction + places.length) % places.length;
    setText(
      found,
      `${count(place + 1)} of ${count(places.length)}${nextSearch === null ? "" : " so far"}`,
    );
    followBox.checked = false;
    await showPlace(places[place]);
  }

  async function searchMore() {
    const answer = await getJson("/api/log-search", {
      ...child,
      attempt,
      text: searched,
      begin: nextSearch,
    });
    places.push(...answer.places);
    nextSearch = answer.next;
  }

  async function showPlace(position) {
    if (position < begin || position + searched.length > end)
      await show(Math.max(0, position - PART / 2));
    const before = new TextDecoder().decode((await read(begin)).data.subarray(0, position - begin));
    highlight(before, searched);
    describe();
  }

  /** Select the match that follows as many others in the text as in the bytes before it. */
  function highlight(before, needle) {
    const occurrences = before.toLowerCase().split(needle.toLowerCase()).length - 1;
    const content = text.textContent.toLowerCase();
    let at = -1;
    for (let i = 0; i <= occurrences; i++) {
      const next = content.indexOf(needle.toLowerCase(), at + 1);
      if (next < 0) break;
      at = next;
    }
    if (at < 0) return;
    const range = document.createRange();
    setPoint(range, "setStart", at);
    setPoint(range, "setEnd", at + needle.length);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    const box = range.getBoundingClientRect(),
      frame = text.getBoundingClientRect();
    text.scrollTop += box.top - frame.top - frame.height / 3;
  }

  function setPoint(range, method, position) {
    const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (position <= node.length) {
        range[method](node, position);
        return;
      }
      position -= node.length;
    }
  }

  // -- the child

  async function drawDetails() {
    use.update(true);
    const answer = await getJson("/api/child", child);
    const rows = answer.attempts.map((one) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, String(one.attempt)),
        el("td", { class: "left" }, one.state),
        el("td", { class: "left wrap" }, one.state === "SUCCEEDED" ? "" : one.reason),
        el("td", {}, time(one.started_ms)),
        el("td", {}, one.started_ms ? duration((one.ended_ms - one.started_ms) / 1000) : "–"),
        el("td", {}, duration(one.cpu_s)),
        el("td", {}, memory(one.memory_kib)),
      ),
    );
    details.replaceChildren(
      el(
        "article",
        {},
        el(
          "pre",
          { class: "command", tabindex: "0", "aria-label": "Command" },
          answer.commands.map((command) => command.text).join("\n") +
            (answer.more_commands ? `\nand ${plural(answer.more_commands, "more command")}` : ""),
        ),
      ),
      rows.length
        ? el(
            "div",
            { class: "scroll", tabindex: "0", role: "region", "aria-label": "Attempts" },
            el(
              "table",
              {},
              el(
                "thead",
                {},
                el(
                  "tr",
                  {},
                  ...["Attempt", "State", "Reason", "Started", "Took", "CPU time", "Memory"].map(
                    (word, i) =>
                      el("th", { scope: "col", class: i === 1 || i === 2 ? "left" : null }, word),
                  ),
                ),
              ),
              el("tbody", {}, ...rows),
            ),
          )
        : el("p", { class: "note" }, "No attempt has ended."),
      el("p", { class: "again" }, commandLine(`batchyard retry ${run} ${step}:${index}`)),
    );
  }

  guard(async () => {
    await show(null);
    toBottom();
  });
  drawDetails().catch((error) => details.replaceChildren(el("p", { class: "bad" }, error.message)));
  // The child is read again when the run has changed; the log each second, as long as it may grow.
  let isRunning = true,
    readsLeft = LAST_READS,
    known = "";
  const stop = follow(`/api/run?run=${encodeURIComponent(run)}`, {
    run: (document) => {
      isRunning = document.state === "RUNNING";
      const now = JSON.stringify(document.steps.find((one) => one.name === step)?.counts);
      if (known && now !== known) drawDetails().catch(() => {});
      known = now;
    },
  });
  timer = setInterval(() => {
    if (isRunning && !document.hidden) use.update(false);
    if (document.hidden || isBusy || end < size) return;
    if (isRunning) readsLeft = LAST_READS;
    else if (readsLeft-- <= 0) return;
    guard(append);
  }, POLL_MS);
  return () => {
    isOver = true;
    clearInterval(timer);
    use.close();
    stop();
  };
}
