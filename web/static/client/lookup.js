// @ts-check
/** Some tasks that are followed together: what is known of them, and reading them anew at the server. */

import { ProblemError, verdict } from "./errors.js";
import { movesOf } from "./story.js";

/**
 * Where a feed tells what it learns, and finds what is known. A task without a story is no longer wanted.
 * @typedef {{stories: Map<string, import("./story.js").Story>, tell: (message: import("./board.js").Message) => void,
 *   heard: () => void}} Listener
 */

export class Lookup {
  /** @type {Set<string>} */
  ids = new Set();

  /**
   * @param {import("./http.js").Http} http
   * @param {Listener} listener
   */
  constructor(http, listener) {
    this.http = http;
    this.tell = listener.tell;
    this.heard = listener.heard;
    this.#all = listener.stories;
  }
  #all;

  forgetUnwanted() {
    for (const id of this.ids) if (!this.#all.has(id)) this.ids.delete(id);
  }

  /** The stories of the tasks, by id. */
  get stories() {
    return [...this.ids].flatMap((id) => {
      const story = this.#all.get(id);
      return story ? [/** @type {const} */ ([id, story])] : [];
    });
  }

  /** The tasks that something may still happen to by itself. */
  get unfinished() {
    return this.stories.filter(([, story]) => !story.isFinal).map(([id]) => id);
  }

  /** Forget that what is known is all there is. */
  doubt() {
    for (const [, story] of this.stories) story.isKnown = false;
  }

  /**
   * Read the tasks of which not all is known.
   * @param {AbortSignal} signal
   */
  async completeAll(signal) {
    for (const [id, story] of this.stories) if (!story.isKnown) await this.complete(id, signal);
  }

  /**
   * Read a task's whole history, which is true from what is known of it now.
   * @param {string} id
   * @param {AbortSignal} signal
   */
  async complete(id, signal) {
    const since = this.#all.get(id)?.cursor ?? null;
    try {
      const answer = await this.http.json(`/api/tasks/${id}/history`, { signal });
      this.tell({ kind: "whole", id, moves: movesOf(answer), since });
    } catch (error) {
      if (!this.isGone(error, id)) throw error;
    }
  }

  /**
   * Look again at those that are not final; when all are, tell that it is over, and return true.
   * @param {AbortSignal} signal
   */
  async isOver(signal) {
    for (const id of this.unfinished) await this.complete(id, signal);
    if (this.unfinished.length) return false;
    this.tell({ kind: "over", ids: [...this.ids] });
    return true;
  }

  /**
   * When an error says that one of the tasks is no more, tell so and return true.
   * @param {unknown} error
   * @param {string} [asked] - the task that was asked for, when it was a single one
   */
  isGone(error, asked) {
    if (!(error instanceof ProblemError) || verdict(error) !== "gone") return false;
    const id = asked ?? error.problem?.task ?? "";
    if (!this.ids.delete(id)) return false;
    this.tell({ kind: "gone", id, status: error.status, problem: error.problem });
    return true;
  }
}
