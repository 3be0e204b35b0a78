// The states of runs, steps and children: their words and colours.

export const JOB_STATES = [
  "SUBMITTED",
  "PENDING",
  "RUNNABLE",
  "STARTING",
  "RUNNING",
  "SUCCEEDED",
  "FAILED",
];
//: Parts of a step's bar, from left to right -> positions in JOB_STATES.
export const BAR = [
  ["succeeded", [5]],
  ["failed", [6]],
  ["running", [3, 4]],
  ["waiting", [0, 1, 2]],
];
//: States of children: the numbers are those of child_table.py.
export const CHILD_STATES = [
  "waiting",
  "running",
  "succeeded",
  "failed",
  "retrying",
  "never started",
];
export const TONES = {
  SUCCEEDED: "good",
  FAILED: "bad",
  RUNNING: "busy",
  STOPPED: "warn",
  INTERRUPTED: "warn",
  UNREADABLE: "bad",
  ELSEWHERE: "dim",
};

/** Return [red, green, blue] of a custom property of the style sheet. */
export function colourOf(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const value = parseInt(text.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}
