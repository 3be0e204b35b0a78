// Server-sent events, and what is said while the server does not answer.

const sign = document.getElementById("connection");
const RETRY_MS = 2000;
export const NO_SERVER =
  "The server does not answer. Trying again every 2 seconds: is `batchyard ui` running?";
const OTHER_SERVER =
  "The server was started anew: open the address that `batchyard ui` has printed.";

export function sayConnection(text, tone = "") {
  if (sign.textContent !== text) sign.textContent = text;
  sign.className = tone;
}

/**
 * Follow a stream until the returned function is called. A tab that is not visible has no stream:
 * browsers allow only six connections to a server. Visible again, it gets the whole state.
 */
export function follow(address, listeners) {
  let source = null,
    timer = null,
    isOver = false;
  function open() {
    clearTimeout(timer);
    if (isOver || source || document.hidden) return;
    source = new EventSource(address);
    for (const [name, listener] of Object.entries(listeners)) {
      source.addEventListener(name, (event) => listener(JSON.parse(event.data)));
    }
    source.onopen = () => sayConnection("live", "good");
    source.onerror = async () => {
      close();
      const refusal = await explainRefusal(address);
      if (isOver) return;
      sayConnection(refusal.text, "bad");
      if (refusal.isFinal) listeners.refused?.(refusal.text);
      else timer = setTimeout(open, RETRY_MS);
    };
  }
  function close() {
    if (source) source.close();
    source = null;
  }
  function onVisibility() {
    if (document.hidden) close();
    else open();
  }
  document.addEventListener("visibilitychange", onVisibility);
  open();
  return () => {
    isOver = true;
    clearTimeout(timer);
    close();
    document.removeEventListener("visibilitychange", onVisibility);
  };
}

/** Return why a stream has ended, and whether it ends for good: a run that is not there. */
async function explainRefusal(address) {
  const stop = new AbortController();
  try {
    const answer = await fetch(address, { signal: stop.signal });
    if (answer.ok) return { text: "The connection was lost. Trying again." };
    if (answer.status === 403) return { text: OTHER_SERVER };
    const isFinal = answer.status === 400 || answer.status === 404;
    return { text: (await answer.text()).trim(), isFinal };
  } catch {
    return { text: NO_SERVER };
  } finally {
    stop.abort();
  }
}

/** Return the answer to a GET. Raises an Error with the server's sentence. */
export async function get(path, parameters = {}, options = {}) {
  const query = new URLSearchParams(parameters).toString();
  const answer = await fetch(query ? `${path}?${query}` : path, options);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer;
}

export const getJson = async (path, parameters, options) =>
  (await get(path, parameters, options)).json();
