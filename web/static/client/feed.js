// @ts-check
/**
 * Follows some tasks at the server, whatever lies between: by a stream, and by polling where no stream is to be had.
 * While the server does not answer nothing is known, and nothing is told but that.
 */

import { isForGood, NoStream } from "./errors.js";
import { Live } from "./live.js";
import { Lookup } from "./lookup.js";
import { Poll } from "./poll.js";

/** Tasks that one stream may name; more are polled. */
export const TASKS_LIMIT = 50;

export class Feed {
  #lookup;
  #live;
  #poll;
  #change = new AbortController();
  #failures = 0;
  /** Whether a stream could not be had, while the server answered without one. */
  #isDoubted = false;
  #pollUntil = 0;
  #isResting = false;

  /**
   * @param {import("./http.js").Http} http
   * @param {import("./lookup.js").Listener} listener
   */
  constructor(http, listener) {
    this.#lookup = new Lookup(http, { ...listener, heard: () => this.#heard(listener) });
    this.#live = new Live(this.#lookup);
    this.#poll = new Poll(this.#lookup);
  }

  get size() {
    return this.#lookup.ids.size;
  }

  /** @param {string} id */
  has(id) {
    return this.#lookup.ids.has(id);
  }

  /**
   * Follow this task too, from its first move on.
   * @param {string} id
   */
  add(id) {
    this.#lookup.ids.add(id);
    this.#change.abort();
  }

  /**
   * Hold no connection, and look only now and then; or follow again as it should be.
   * @param {boolean} isResting
   */
  rest(isResting) {
    if (isResting === this.#isResting) return;
    this.#isResting = isResting;
    this.#change.abort();
  }

  /**
   * Follow until all tasks are final. Throws what the server refuses for good, and the signal's reason.
   * @param {AbortSignal} signal
   */
  async run(signal) {
    for (;;) {
      signal.throwIfAborted();
      this.#change = new AbortController();
      this.#lookup.forgetUnwanted();
      if (this.size === 0 || (await this.#attempt(AbortSignal.any([signal, this.#change.signal])))) return;
    }
  }

  /**
   * Follow until something goes wrong, or other tasks are wanted; true when all tasks are final.
   * @param {AbortSignal} signal
   */
  async #attempt(signal) {
    try {
      return await this.#follow(signal);
    } catch (error) {
      if (signal.aborted || this.#lookup.isGone(error)) return false;
      if (isForGood(error)) throw error;
      this.#isDoubted = false;
      this.#lookup.tell({ kind: "connection", status: "reconnecting" });
      await this.#lookup.http.backOff(error, this.#failures++, signal).catch(() => {}); // the loop sees an abort
      return false;
    }
  }

  /** @param {AbortSignal} signal */
  async #follow(signal) {
    await this.#lookup.http.awaitToken(signal); // how long that takes says nothing of streams
    if (this.#isResting) return this.#poll.rest(signal);
    if (this.size > TASKS_LIMIT) return this.#poll.run(Infinity, signal);
    if (performance.now() < this.#pollUntil) return this.#poll.run(this.#pollUntil, signal);
    try {
      return await this.#live.run(signal);
    } catch (error) {
      if (signal.aborted || this.#live.wasOpened || isForGood(error)) throw error;
      return this.#followWithout(error, signal);
    }
  }

  /**
   * A stream could not be opened. Is the server away, then it does not answer without one either, and that is what is
   * told. If it does, it may have come back just now: a stream gets a second chance before it is given up for a while.
   * @param {unknown} error
   * @param {AbortSignal} signal
   */
  async #followWithout(error, signal) {
    if (this.#isDoubted || error instanceof NoStream) {
      const again = (error instanceof NoStream && error.again) || this.#lookup.http.timing.streamAgain;
      this.#pollUntil = performance.now() + again;
      this.#poll.startOver();
    }
    this.#isDoubted = true;
    return this.#poll.run(this.#pollUntil, signal);
  }

  /** @param {import("./lookup.js").Listener} listener */
  #heard(listener) {
    this.#failures = 0;
    if (this.#live.wasOpened) this.#isDoubted = false;
    listener.heard();
  }
}
