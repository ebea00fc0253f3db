// @ts-check
/** Following without a stream: answers that the server holds until something changes, or short ones again and again. */

import { isForGood } from "./errors.js";
import { fullJitter, pause } from "./timing.js";

/** @typedef {import("./lookup.js").Lookup} Lookup */

const HELD_LIMIT = 3; // requests that wait at the same time: a browser has six connections for all tabs of a site
const HELD_FAILURES = 2; // in a row, before a proxy counts as one that cuts what waits

export class Poll {
  /** What each task was last seen as. @type {Map<string, {etag: string, progressAt: number | null}>} */
  #seen = new Map();
  #heldFailures = 0;
  #unchanged = 0; // rounds
  #lookup;
  #timing;

  /** @param {Lookup} lookup */
  constructor(lookup) {
    this.#lookup = lookup;
    this.#timing = lookup.http.timing;
  }

  /** Try again whether answers are held. */
  startOver() {
    this.#heldFailures = 0;
  }

  /**
   * Look at least once, and until a moment; true when all tasks are final before. Throws what goes wrong.
   * @param {number} until - by `performance.now()`
   * @param {AbortSignal} signal
   */
  async run(until, signal) {
    await this.#lookup.completeAll(signal);
    let mayHold = false; // first see how things stand: what is held may say nothing for long
    do {
      const ids = this.#lookup.unfinished;
      if (ids.length === 0) return this.#lookup.isOver(signal);
      /** @type {boolean} */
      const isHeld = mayHold && ids.length <= HELD_LIMIT && this.#heldFailures < HELD_FAILURES;
      mayHold = await (isHeld ? this.#holdAll(ids, until, signal) : this.#askAll(ids, signal));
    } while (performance.now() < until);
    return false;
  }

  /**
   * Look at long intervals, with nothing held in between, until aborted; true when all tasks are final before.
   * @param {AbortSignal} signal
   */
  async rest(signal) {
    while (!(await this.run(0, signal))) await pause(this.#timing.rest, signal, true);
    return true;
  }

  #answered() {
    this.#lookup.heard();
    this.#lookup.tell({ kind: "connection", status: "polling" });
  }

  /**
   * Follow by answers that are held; false when one failed, which may be only because it had to wait.
   * @param {string[]} ids
   * @param {number} until
   * @param {AbortSignal} signal
   */
  async #holdAll(ids, until, signal) {
    const stop = new AbortController();
    const either = AbortSignal.any([signal, stop.signal]);
    try {
      await Promise.all(ids.map((id) => this.#hold(id, until, either)));
      return true;
    } catch (error) {
      if (signal.aborted || isForGood(error)) throw error;
      this.#heldFailures += 1;
      return false;
    } finally {
      stop.abort();
    }
  }

  /**
   * Follow one task by answers that are held, until it is final.
   * @param {string} id
   * @param {number} until
   * @param {AbortSignal} signal
   */
  async #hold(id, until, signal) {
    while (performance.now() < until && this.#heldFailures < HELD_FAILURES && this.#lookup.unfinished.includes(id)) {
      const asked = performance.now();
      const isNews = await this.#ask(id, Math.min(this.#timing.held, until - asked), signal);
      // What came at once without news was not held: the server has no place for one more that waits.
      const wasHeld = isNews || performance.now() - asked > this.#timing.pollFirst / 2;
      this.#heldFailures = wasHeld ? 0 : this.#heldFailures + 1;
      await pause(this.#timing.pollFirst / 4, signal); // however fast it changes
    }
  }

  /**
   * Ask once for each task, then wait: longer when nothing changed. Returns true.
   * @param {string[]} ids
   * @param {AbortSignal} signal
   */
  async #askAll(ids, signal) {
    let isChanged = false;
    for (const id of ids) isChanged = (await this.#ask(id, 0, signal)) || isChanged;
    this.#unchanged = isChanged ? 0 : this.#unchanged + 1;
    const { pollFirst, pollMost } = this.#timing;
    await pause(pollFirst / 2 + fullJitter(this.#unchanged, pollFirst, pollMost), signal, true);
    return true;
  }

  /**
   * Ask for a task, and tell what is new; false when nothing is.
   * @param {string} id
   * @param {number} held - how long the answer may be held, in ms
   * @param {AbortSignal} signal
   */
  async #ask(id, held, signal) {
    const wait = held ? `?wait=${Math.ceil(held / 1000)}` : "";
    const headers = { "If-None-Match": this.#seen.get(id)?.etag ?? '""' };
    const wish = { signal, timeout: held + this.#timing.request, headers };
    try {
      const response = await this.#lookup.http.send(`/api/tasks/${id}${wait}`, wish);
      const task = await this.#lookup.http.read(response, signal);
      if (task) await this.#look(task, response.headers.get("ETag") ?? "", signal);
      this.#answered();
      return task !== null;
    } catch (error) {
      if (this.#lookup.isGone(error, id)) return true;
      throw error;
    }
  }

  /**
   * @param {any} task
   * @param {string} etag
   * @param {AbortSignal} signal
   */
  async #look(task, etag, signal) {
    const { id, attempt, progress, message, progress_at: at, cursor } = task;
    const known = this.#lookup.stories.find(([known]) => known === id)?.[1];
    if (known && known.cursor !== cursor) await this.#lookup.complete(id, signal);
    const isNews = at !== null && at !== this.#seen.get(id)?.progressAt;
    if (isNews) this.#lookup.tell({ kind: "progress", data: { id, attempt, progress, message, at } });
    this.#seen.set(id, { etag, progressAt: at }); // last: who is cut off asks for it again
  }
}
