// @ts-check
/**
 * Follows some tasks at the server, whatever lies between: by a stream, and by polling where no stream is to be had.
 * While the server does not answer nothing is known, and nothing is told but that.
 */

import { isLastWord, Silent } from "./errors.js";
import { Live } from "./live.js";
import { Lookup } from "./lookup.js";
import { Poll } from "./poll.js";

/** Tasks that one stream may name; more are polled. */
export const TASKS_LIMIT = 50;

const STREAM_FAILURES = 3; // in a row, before the server is asked without a stream

export class Feed {
  #lookup;
  #live;
  #poll;
  #change = new AbortController();
  #failures = 0;
  #streamFailures = 0;
  #pollUntil = 0;

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
      if (isLastWord(error)) throw error;
      this.#lookup.tell({ kind: "connection", status: "reconnecting" });
      await this.#lookup.http.backOff(error, this.#failures++, signal).catch(() => {}); // the loop sees an abort
      return false;
    }
  }

  /** @param {AbortSignal} signal */
  async #follow(signal) {
    const until = this.size > TASKS_LIMIT ? Infinity : this.#pollUntil;
    if (performance.now() < until) return this.#poll.run(until, signal);
    if (this.#streamFailures === STREAM_FAILURES && (await this.#asksOnce(signal))) return true;
    try {
      return await this.#live.run(signal);
    } catch (error) {
      if (!signal.aborted && !this.#live.wasOpened) this.#doubtStreams(error);
      throw error;
    }
  }

  /**
   * Find out whether the server is away, or only its streams are.
   * @param {AbortSignal} signal
   */
  async #asksOnce(signal) {
    this.#streamFailures = 0;
    const isOver = await this.#poll.run(0, signal);
    this.#streamFailures = STREAM_FAILURES;
    return isOver;
  }

  /**
   * A stream could not be opened. One that stays silent is held back by a proxy; other failures may be the server's.
   * @param {unknown} error
   */
  #doubtStreams(error) {
    this.#streamFailures += 1;
    if (error instanceof Silent || this.#streamFailures > STREAM_FAILURES) {
      this.#streamFailures = STREAM_FAILURES + 1; // known: at the next try, one failure is enough
      this.#pollUntil = performance.now() + this.#lookup.http.timing.streamAgain;
    }
  }

  /** @param {import("./lookup.js").Listener} listener */
  #heard(listener) {
    this.#failures = 0;
    if (this.#live.wasOpened) this.#streamFailures = 0;
    listener.heard();
  }
}
