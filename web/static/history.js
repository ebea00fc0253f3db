// @ts-check
// The list of a task's moves, the newest first: each is added once, and what stands there is left alone.

import { isAfter } from "./client/story.js";
import { element } from "./dom.js";
import { clock } from "./times.js";

/** @typedef {import("./client/story.js").Move} Move */

export class History {
  /** The place of the newest move. @type {string | null} */
  newest = null;
  #list;

  /** @param {HTMLElement} list */
  constructor(list) {
    this.#list = list;
  }

  /** Add a move; tell whether it is news. @param {Move} move */
  add(move) {
    if (this.newest && !isAfter(move.cursor, this.newest)) return false;
    this.newest = move.cursor;
    this.#list.prepend(item(move));
    return true;
  }

  clear() {
    this.newest = null;
    this.#list.replaceChildren();
  }
}

/** @param {Move} move */
function item(move) {
  const path = move.from && move.from !== move.state ? `${move.from} → ${move.state}` : move.state;
  const parts = [move.event, `attempt ${move.attempt}`, `by ${move.actor}`, move.reason && `reason ${move.reason}`];
  const how = element("span", { class: "quiet" }, parts.filter(Boolean).join(", "));
  const time = element("time", { datetime: new Date(move.at).toISOString() }, clock(move.at));
  const said = move.message ? [element("p", {}, move.message)] : [];
  return element("li", {}, element("strong", {}, path), " ", how, time, ...said);
}
