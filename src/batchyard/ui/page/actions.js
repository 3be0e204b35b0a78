// Stop, retry and resume: a question that says what will happen, and then a POST.

import { el } from "./dom.js";
import { getJson } from "./live.js";

export function makeActions(run) {
  const buttons = ["stop", "retry", "resume"].map((action) =>
    el(
      "button",
      { type: "button", onclick: () => ask(run, action) },
      action[0].toUpperCase() + action.slice(1),
    ),
  );
  return {
    node: el("span", { class: "actions" }, ...buttons),
    update(document) {
      const isOver = document.state !== "RUNNING",
        isInterrupted = Boolean(document.interruption);
      buttons[0].hidden = isOver;
      buttons[1].hidden = !isOver || document.state === "SUCCEEDED";
      buttons[2].hidden = !isInterrupted;
    },
  };
}

async function ask(run, action) {
  const words = el("p", {}, "…"),
    go = el("button", { type: "button", disabled: true }, `Yes, ${action}`);
  const dialog = el(
    "dialog",
    { "aria-label": `${action} ${run}`, onclose: () => dialog.remove() },
    words,
    el(
      "p",
      { class: "tools" },
      go,
      el("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "No"),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  go.addEventListener("click", async () => {
    go.disabled = true;
    try {
      const answer = await post({ run, action });
      dialog.close();
      location.hash = `#/run/${encodeURIComponent(answer.run)}`;
    } catch (error) {
      words.textContent = error.message;
    }
  });
  try {
    words.textContent = (await getJson("/api/question", { run, action })).question;
    go.disabled = false;
  } catch (error) {
    words.textContent = error.message;
  }
}

async function post(parameters) {
  const answer = await fetch("/api/act", {
    method: "POST",
    body: new URLSearchParams(parameters),
    headers: { "X-Batchyard-Action": "1" },
  });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}
