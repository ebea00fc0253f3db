// @ts-check
// How a task looks on its page.

import { byId, element, fill, pretty, rich, show, write } from "./dom.js";
import { ago, clock, hour, localized, now } from "./times.js";

const LOG_LINES = 500;

/** @type {Record<string, string>} */
const KINDS = {
  SUCCESS: "good", FAILED: "bad", TIMEOUT_CANCELLED: "bad", CANCELLED: "held", PAUSED: "held", PAUSING: "held",
  purged: "gone", unknown: "gone",
};
const FACTS = [
  ["type", "Type"], ["queue", "Queue"], ["owner", "Owner"], ["attempt", "Attempt"], ["worker_id", "Worker"],
  ["failures", "Failures"], ["timeouts", "Timeouts"], ["losses", "Losses"], ["depends_on", "Depends on"],
];
const TIMES = [["submitted_at", "Submitted"], ["started_at", "Started"], ["due_at", "Due"], ["finished_at", "Ended"]];

/** @type {Record<string, string>} */
const CONNECTIONS = {
  reconnecting: "reconnecting; what is shown may be old", failed: "not followed; what is shown may be old",
};

const id = byId("task").dataset.id;
let since = 0;

/** @param {string} state @param {number} entered - ms since 1970; 0: not known */
export function showState(state, entered) {
  since = entered;
  write("state", state);
  byId("state").dataset.kind = KINDS[state] ?? "moving";
  document.title = `${state} ${id} - Ghostless`;
  showSince();
}

/** Say anew for how long it is in its state. */
export function showSince() {
  write("since", since ? `since ${clock(since)}, ${ago(since)}` : "");
}

/** @param {string} status */
export function showConnection(status) {
  byId("connection").dataset.kind = status;
  write("connection", CONNECTIONS[status] ?? status);
}

/** @param {number | null} progress @param {string | null} message */
export function showProgress(progress, message) {
  if (progress === null) byId("progress").removeAttribute("value");
  else byId("progress").setAttribute("value", String(progress));
  write("progress-label", progress === null ? "Progress" : `Progress ${percent(progress)}`);
  write("message", message ?? "");
}

/** A part as whole percents, never 100 before the end. @param {number} part */
function percent(part) {
  const whole = Math.floor(Number((part * 100).toFixed(6))); // 0.29 * 100 is a little less than 29
  return `${part < 1 ? Math.min(whole, 99) : whole} %`;
}

/** @param {any} task */
export function showTask(task) {
  const isDone = task.state === "SUCCESS";
  showState(task.state, task.entered_at);
  byId("running").hidden = isDone || (task.progress === null && task.state !== "PROCESSING");
  showProgress(task.progress, task.message);
  byId("ended").hidden = !isDone;
  write("result", isDone ? pretty(task.result) : "");
  byId("failed").hidden = !task.error;
  write("error", task.error ?? "");
  write("params", pretty(task.params ?? {}));
  showFacts(task);
}

/** @param {any} task */
function showFacts(task) {
  const texts = FACTS.map(([name, label]) => [label, pretty(task[name] ?? "")]);
  const times = TIMES.map(([name, label]) => [label, task[name] ? clock(task[name]) : ""]);
  const rows = [...texts, ...times].filter(([, text]) => text !== "" && text !== "0" && text !== "[]");
  fill("facts", rows.flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)]));
}

/** The server's words. @param {string} text */
const words = (text) => rich(localized(text));

/** @param {{why: string, next: string, evidence: string[]}} explanation */
export function showExplanation({ why, next, evidence }) {
  fill("why", words(why));
  fill("next", next ? ["Next: ", ...words(next)] : []);
  fill("can", evidence.map((line) => element("li", {}, ...words(line))));
  write("as-of", `as of ${hour(now())}`);
}

/** @param {import("./client/errors.js").ProblemError} error */
export function showGone(error) {
  showState(error.status === 410 ? "purged" : "unknown", 0);
  byId("running").hidden = true;
  showExplanation({ why: error.message, next: "", evidence: [] });
}

/** @param {{name: string, is_picture: boolean, url: string}[]} artifacts */
export function showArtifacts(artifacts) {
  byId("kept").hidden = artifacts.length === 0;
  fill("pictures", artifacts.map(({ name, url, is_picture: isPicture }) => {
    const inside = isPicture ? element("img", { src: url, alt: name }) : name;
    return element("a", { href: url }, inside);
  }));
}

/** @param {string} text */
export function addLine(text) {
  byId("logged").hidden = false;
  byId("log").append(`${text}\n`);
  while (byId("log").childNodes.length > LOG_LINES) byId("log").firstChild?.remove();
}

/** What went wrong, by what was asked for. @type {Map<string, string>} */
const faults = new Map();

/** Tell what went wrong with one thing, until it goes right ("" as `text`). @param {string} what @param {string} text */
export function showFault(what, text) {
  if (text) faults.set(what, text);
  else faults.delete(what);
  const told = [...new Set(faults.values())].join(" ");
  byId("fault").hidden = !told;
  fill("fault", words(told));
}
