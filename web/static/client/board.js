// @ts-check
/** What is known of all tasks that are watched, wherever it was learnt, and the watches that are told of it. */

import { ProblemError } from "./errors.js";
import { isAfter, Story } from "./story.js";

/**
 * What is learnt of tasks, in this tab or in another one.
 * @typedef {import("./errors.js").Problem} Problem
 * @typedef {import("./story.js").Move} Move
 * @typedef {import("./watch.js").Status} Status
 * @typedef {import("./watch.js").Watch} Watch
 * @typedef {{kind: "move", move: Move}
 *   | {kind: "whole", id: string, moves: Move[], since: string | null}
 *   | {kind: "progress" | "log", data: any}
 *   | {kind: "gone", id: string, status: number, problem: Problem | null}
 *   | {kind: "over", ids: string[]}
 *   | {kind: "connection", status: Status, age?: number}} Message
 */

export class Board {
  /** @type {Map<string, Story>} */
  stories = new Map();
  /** @type {Set<Watch>} */
  watches = new Set();
  /** @type {Status | null} */
  #status = null;
  #heardAt = Date.now();

  /**
   * Tell a watch from now on, and first what is known already.
   * @param {Watch} watch
   */
  add(watch) {
    this.watches.add(watch);
    for (const id of watch.ids) {
      const story = this.stories.get(id);
      if (story) story.isOver = false; // it may have been taken up again since
      for (const move of story?.moves ?? []) watch.move(move);
    }
    if (this.#status) watch.connection(this.#status, this.age, this.stories);
  }

  /**
   * Keep the stories of exactly these tasks; return those that are new.
   * @param {Set<string>} wanted
   */
  keep(wanted) {
    for (const id of this.stories.keys()) if (!wanted.has(id)) this.stories.delete(id);
    const added = [...wanted].filter((id) => !this.stories.has(id));
    for (const id of added) this.stories.set(id, new Story());
    return added;
  }

  clear() {
    this.stories.clear();
    this.watches.clear();
    this.#status = null;
  }

  /** Note that the server was heard. */
  heard() {
    this.#heardAt = Date.now();
  }

  /** For how many ms nothing was heard of the server. */
  get age() {
    return Date.now() - this.#heardAt;
  }

  /** Tasks of watches that seem to be at their end, of which nobody said so. */
  get unconfirmed() {
    const isFinal = (/** @type {string} */ id) => this.stories.get(id)?.isFinal;
    const ids = [...this.watches].flatMap((watch) => ([...watch.ids].every(isFinal) ? [...watch.ids] : []));
    return ids.filter((id) => !this.stories.get(id)?.isEnded);
  }

  // What is learnt

  /**
   * Take what was learnt, and tell it; false when it is no news.
   * @param {Message} message
   * @returns {boolean}
   */
  note(message) {
    switch (message.kind) {
      case "move":
        return this.#move(message.move);
      case "whole":
        return this.#whole(message.id, message.moves, message.since);
      case "gone":
        return this.#gone(message.id, new ProblemError(message.status, message.problem));
      case "over":
        return message.ids.map((id) => this.end(id)).some(Boolean);
      case "connection":
        return this.#connection(message.status, message.age);
      default:
        this.#each((watch) => watch.live(message.kind, message.data));
        return true;
    }
  }

  /**
   * Tell those that watch now; one that begins in a callback is told by `add`.
   * @param {(watch: Watch) => void} tell
   */
  #each(tell) {
    for (const watch of [...this.watches]) tell(watch);
  }

  /**
   * Note that nothing more will come of a task, if it is final.
   * @param {string} id
   */
  end(id) {
    const story = this.stories.get(id);
    if (!story?.isFinal) return false;
    story.isOver = true;
    return true;
  }

  /** @param {Move} move */
  #move(move) {
    if (!this.stories.get(move.id)?.takes(move)) return false;
    this.#each((watch) => watch.move(move));
    return true;
  }

  /**
   * @param {string} id
   * @param {Move[]} moves
   * @param {string | null} since
   */
  #whole(id, moves, since) {
    const story = this.stories.get(id);
    if (!story) return false;
    const { isAnew, news } = story.takesWhole(moves, since);
    this.#each((watch) => {
      if (isAnew) watch.reset(id);
      for (const move of news) watch.move(move);
    });
    return true;
  }

  /**
   * @param {string} id
   * @param {ProblemError} error
   */
  #gone(id, error) {
    const story = this.stories.get(id);
    if (story) story.gone = error;
    return true;
  }

  /**
   * @param {Status} status
   * @param {number} [age]
   */
  #connection(status, age) {
    if (age !== undefined) this.#heardAt = Date.now() - age;
    if (status === this.#status && status !== "reconnecting") return false;
    this.#status = status;
    this.#each((watch) => watch.connection(status, this.age, this.stories));
    return true;
  }

  // For other tabs

  /**
   * For each task, up to where it is known.
   * @returns {import("./tabs.js").Known}
   */
  get known() {
    return Object.fromEntries([...this.stories].map(([id, { isKnown, cursor }]) => [id, isKnown ? cursor : null]));
  }

  /**
   * Return what somebody does not know yet who knows so much.
   * @param {import("./tabs.js").Known} known
   * @returns {Message[]}
   */
  beyond(known) {
    const messages = Object.entries(known).flatMap(([id, cursor]) => this.#news(id, cursor));
    return this.#status ? [...messages, { kind: "connection", status: this.#status, age: this.age }] : messages;
  }

  /**
   * @param {string} id
   * @param {string | null} cursor
   * @returns {Message[]}
   */
  #news(id, cursor) {
    const story = this.stories.get(id);
    if (!story) return [];
    if (story.gone) return [{ kind: "gone", id, status: story.gone.status, problem: story.gone.problem }];
    const isBehind = story.cursor !== null && (cursor === null || isAfter(story.cursor, cursor));
    /** @type {Message[]} */
    const whole = story.isKnown && isBehind ? [{ kind: "whole", id, moves: story.moves, since: null }] : [];
    return story.isOver ? [...whole, { kind: "over", ids: [id] }] : whole;
  }
}
