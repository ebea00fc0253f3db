// @ts-check
// The page of one task. It shows what the API says, and nothing that it only believes.

import { Actions } from "./actions.js";
import { Client, FINAL } from "./client.js";
import { verdict } from "./client/errors.js";
import { isAfter } from "./client/story.js";
import { byId } from "./dom.js";
import { History } from "./history.js";
import { Reader } from "./reader.js";
import { base, loginAddress, readSession, showSession } from "./session.js";
import {
  addLine, showArtifacts, showConnection, showExplanation, showFault, showGone, showProgress, showSince, showState,
  showTask,
} from "./task_view.js";

const LOOK = 30_000; // ms between two looks at a task that nobody tells of any more
const WHY = 5_000; // ms between two questions why a task is where it is: the answer counts seconds
const NEWS = 1_000; // ms from a report of progress to that question, whose answer tells of reports too
const PATIENCE = 10_000; // ms for which a request is repeated before its error is shown

byId("unloaded").remove(); // all modules are there

const id = byId("task").dataset.id ?? "";
const session = await readSession();
// Tabs share a stream only with tabs of the same person; where nobody can tell, with none.
const identity = session && JSON.stringify([session.actor, session.owner, session.scopes]);
const client = new Client({ base: `${base}/`, identity, timing: { patience: PATIENCE } });
const history = new History(byId("history"));
const actions = new Actions(act);

/** The place in the history of what is shown as the state. @type {string | null} */
let shown = null;
/** The newest report of progress. @type {{attempt: number, progress: number, message: string, at: number} | null} */
let reported = null;
/** What is about to ask why. @type {number | undefined} */
let asking;
let isFinal = false;
let isFollowed = false;
let connection = "connecting";

const task = new Reader(readTask, (error) => tell("task", error));
const why = new Reader(readWhy, (error) => tell("why", error));
const artifacts = new Reader(readArtifacts, (error) => tell("artifacts", error));

function refresh() {
  for (const reader of [task, why, artifacts]) reader.ask();
}

async function readTask() {
  const read = await client.get(id);
  if (shown && isAfter(shown, read.cursor)) return; // a move came meanwhile, and asked for another read
  shown = read.cursor;
  isFinal = FINAL.has(read.state);
  showTask(withReport(read));
  // An operator's retry, from wherever, begins another life.
  if (!isFinal || (history.newest && isAfter(read.cursor, history.newest))) follow();
}

/** A read may have begun before a report that came meanwhile. @param {any} read */
function withReport(read) {
  if (!reported || reported.attempt !== read.attempt || reported.at <= (read.progress_at ?? 0)) return read;
  return { ...read, progress: reported.progress, message: reported.message };
}

/** @param {{attempt: number, progress: number, message: string, at: number}} report */
function onProgress(report) {
  reported = report;
  showProgress(report.progress, report.message);
  askWhySoon();
}

/** Reports may come often; one answer is enough for all that come within a second. */
function askWhySoon() {
  asking ??= setTimeout(() => {
    asking = undefined;
    why.ask();
  }, NEWS);
}

async function readWhy() {
  const explanation = await client.explain(id);
  showExplanation(explanation);
  const mayAct = !session || session.scopes.includes("operate");
  actions.allow(mayAct ? explanation.actions : []);
}

async function readArtifacts() {
  showArtifacts((await client.artifacts(id)).artifacts);
}

/** Tell of an error, or that there is none any more. @param {string} what @param {any} error */
function tell(what, error) {
  showFault(what, error?.message ?? "");
  if (verdict(error) === "refused" && error?.status === 401) location.assign(loginAddress());
  if (verdict(error) === "gone") {
    isFinal = true;
    showGone(error);
    actions.allow([]);
  }
}

/** @param {string} action */
async function act(action) {
  const doing = /** @type {"cancel" | "pause" | "resume" | "retry"} */ (action);
  tell("action", await client[doing](id).then(() => null, (error) => error));
  refresh();
}

/** @param {import("./client/story.js").Move} move */
function onTask(move) {
  if (!history.add(move)) return;
  if (!shown || isAfter(move.cursor, shown)) {
    shown = move.cursor;
    isFinal = FINAL.has(move.state);
    showState(move.state, move.at);
  }
  refresh();
}

function onReset() {
  history.clear();
  shown = null;
  refresh();
}

/** @param {string} status */
function onConnection(status) {
  if (status === "live" && connection !== "live") refresh();
  connection = status;
  showConnection(status);
}

/** Follow the task to its end; it may have several. */
async function follow() {
  if (isFollowed) return;
  isFollowed = true;
  try {
    await client.watch([id], {
      onTask,
      onReset,
      onProgress,
      onLog: ({ line }) => addLine(line),
      onConnection: ({ status }) => onConnection(status),
    });
    isFollowed = false;
    onConnection("ended");
    tell("stream", null);
    refresh();
  } catch (error) {
    isFollowed = false; // until the next look
    onConnection("failed");
    tell("stream", error);
  }
}

/** See what nobody tells: a retry or the end of a task that is not followed any more, and files. */
function look() {
  if (document.hidden) return;
  task.ask();
  artifacts.ask();
}

showSession(session);
document.addEventListener("visibilitychange", look);
window.addEventListener("focus", look);
window.addEventListener("pageshow", ({ persisted }) => persisted && look());
setInterval(look, LOOK);
setInterval(() => document.hidden || isFinal || why.ask(), WHY);
setInterval(showSince, 1000);
refresh();
follow();
