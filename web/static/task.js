// The page of one task. It shows what the API says, and nothing that it only believes.

import { Client } from "./client.js";
import { ago, byId, clock, element, pretty, show } from "./dom.js";

const LOG_LINES = 500;
const KINDS = {
  SUCCESS: "good", FAILED: "bad", TIMEOUT_CANCELLED: "bad", CANCELLED: "held", PAUSED: "held", PAUSING: "held",
};
const FACTS = [
  ["type", "Type"], ["queue", "Queue"], ["owner", "Owner"], ["attempt", "Attempt"], ["worker_id", "Worker"],
  ["failures", "Failures"], ["timeouts", "Timeouts"], ["losses", "Losses"], ["depends_on", "Depends on"],
];
const CONNECTIONS = {
  live: "live", polling: "polling", reconnecting: "reconnecting; what is shown may be old", ended: "ended",
};
const TIMES = [["submitted_at", "Submitted"], ["started_at", "Started"], ["due_at", "Due"], ["finished_at", "Ended"]];

const base = document.body.dataset.base;
const id = byId("task").dataset.id;
const client = new Client({ base: `${base}/`, identity: await identity() });

let since = 0;
/** @type {Promise<void>} */
let reading = Promise.resolve();
let isAsked = false;
let isFollowed = false;

/** Whose page this is: tabs share a stream only with tabs of the same person. Null where nobody can tell. */
async function identity() {
  const answer = await fetch(`${base}/api/session`).catch(() => null);
  return answer?.ok ? (await answer.json()).actor : null;
}

function showState(state, entered) {
  since = entered;
  byId("state").textContent = state;
  byId("state").dataset.state = state;
  byId("state").dataset.kind = KINDS[state] ?? "moving";
  document.title = `${state} ${id} - Ghostless`;
  showSince();
}

function showSince() {
  byId("since").textContent = since ? `since ${clock(since)}, ${ago(since)}` : "";
}

function showProgress(progress, message) {
  const bar = byId("progress");
  if (progress === null || progress === undefined) bar.removeAttribute("value");
  else bar.value = progress;
  const percent = progress === null || progress === undefined ? "" : `${Math.floor(progress * 100)} %`;
  byId("progress-label").textContent = `Progress ${percent}`.trim();
  byId("message").textContent = message ?? "";
}

function showTask(task) {
  showState(task.state, task.entered_at);
  byId("running").hidden = task.state === "SUCCESS" || (task.progress === null && task.state !== "PROCESSING");
  showProgress(task.progress, task.message);
  byId("ended").hidden = task.state !== "SUCCESS";
  byId("result").textContent = task.state === "SUCCESS" ? pretty(task.result) : "";
  show("error", task.error ?? "");
  byId("failed").hidden = !task.error;
  byId("params").textContent = pretty(task.params ?? {});
  showFacts(task);
}

function showFacts(task) {
  const texts = FACTS.map(([name, label]) => [label, pretty(task[name] ?? "")]);
  const times = TIMES.map(([name, label]) => [label, task[name] ? clock(task[name]) : ""]);
  const rows = [...texts, ...times].filter(([, text]) => text !== "" && text !== "0" && text !== "[]");
  byId("facts").replaceChildren(
    ...rows.flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)]),
  );
}

function moveItem(move) {
  const path = move.from && move.from !== move.to ? `${move.from} → ${move.to}` : move.to;
  const how = `${move.event}, attempt ${move.attempt}, by ${move.actor}${move.reason ? `, ${move.reason}` : ""}`;
  const item = element("li", {}, element("strong", {}, path), " ", element("span", { class: "quiet" }, how), " ");
  item.append(element("time", { datetime: new Date(move.at).toISOString() }, clock(move.at)));
  if (move.message) item.append(element("p", {}, move.message));
  return item;
}

function showExplanation(explanation) {
  byId("why").textContent = explanation.why;
  byId("next").textContent = explanation.next ? `Next: ${explanation.next}` : "";
  byId("can").replaceChildren(...explanation.evidence.map((line) => element("li", {}, line)));
  for (const button of document.querySelectorAll("#actions button")) {
    button.disabled = !explanation.actions.includes(button.dataset.action);
  }
}

async function showPictures() {
  const { artifacts } = await client.artifacts(id);
  byId("pictures").replaceChildren(
    ...artifacts.map(({ name, url, is_picture: isPicture }) => {
      const inside = isPicture ? element("img", { src: url, alt: name }) : name;
      return element("a", { href: url }, inside);
    }),
  );
}

/** Read everything anew; however often it is asked for meanwhile, once more afterwards is enough. */
function refresh() {
  if (!isAsked) {
    isAsked = true;
    reading = reading.then(readAll).catch(tellFault);
  }
  return reading;
}

async function readAll() {
  isAsked = false;
  const [task, history, explanation] = await Promise.all([
    client.get(id), client.history(id), client.explain(id),
  ]);
  showTask(task);
  byId("history").replaceChildren(...history.entries.map(moveItem).reverse());
  showExplanation(explanation);
  if (task.state === "SUCCESS") await showPictures();
  show("fault", "");
}

function tellFault(error) {
  if (error.status === 401) {
    location.assign(`${base}/login?next=${encodeURIComponent(location.pathname)}`);
    return;
  }
  show("fault", error.message);
  if (error.status === 404 || error.status === 410) showGone(error);
}

function showGone(error) {
  byId("state").textContent = error.status === 410 ? "purged" : "unknown";
  byId("why").textContent = error.message;
  byId("next").textContent = "";
  for (const button of document.querySelectorAll("#actions button")) button.disabled = true;
}

function addLine(text) {
  byId("logged").hidden = false;
  byId("log").append(`${text}\n`);
  while (byId("log").childNodes.length > LOG_LINES) byId("log").firstChild.remove();
}

async function act(button) {
  button.disabled = true;
  try {
    await client[button.dataset.action](id);
    follow();
    await refresh();
  } catch (error) {
    await refresh();
    tellFault(error);
  }
}

/** Follow the task to its end; an operator's retry begins another life, so it may have several. */
async function follow() {
  if (isFollowed) return;
  isFollowed = true;
  try {
    await client.watch([id], {
      onTask: refresh,
      onReset: refresh,
      onProgress: ({ progress, message }) => showProgress(progress, message),
      onLog: ({ line }) => addLine(line),
      onConnection: ({ status }) => showConnection(status),
    });
    showConnection("ended");
    await refresh();
  } catch (error) {
    tellFault(error);
  } finally {
    isFollowed = false;
  }
}

function showConnection(status) {
  byId("connection").dataset.kind = status;
  byId("connection").textContent = CONNECTIONS[status];
}

for (const button of document.querySelectorAll("#actions button")) {
  button.addEventListener("click", () => act(button));
}
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) follow(); // somebody else may have retried it meanwhile
});
setInterval(showSince, 1000);
refresh();
follow();
