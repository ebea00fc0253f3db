// @ts-check
/** One stream of server-sent events over `fetch`, which, unlike EventSource, can send a token and sees the status. */

import { NoStream, Unreachable } from "./errors.js";
import { EventParser } from "./parser.js";
import { onWake } from "./timing.js";

/** @typedef {import("./http.js").Http} Http */
/** @typedef {import("./parser.js").StreamEvent} StreamEvent */

export class EventStream {
  #parser = new EventParser();
  #end = new AbortController();
  #http;
  #timing;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #heardAt = performance.now();
  /** @type {Response | null} */
  #response = null;

  /** @param {Http} http */
  constructor(http) {
    this.#http = http;
    this.#timing = http.timing;
  }

  /** The cursor behind everything that was read. */
  get lastEventId() {
    return this.#parser.lastEventId;
  }

  /** Milliseconds after which the server wants to be asked again. */
  get retry() {
    return Math.min(this.#parser.retry ?? this.#timing.reconnect, this.#timing.patience);
  }

  /**
   * Ask for the stream; false when the server says that nothing will come (204).
   * Throws ProblemError, Unreachable.
   * @param {string} path
   * @param {string | null} cursor - behind which to go on
   * @param {AbortSignal} signal
   */
  async open(path, cursor, signal) {
    /** @type {Record<string, string>} */
    const headers = { Accept: "text/event-stream, application/problem+json" };
    if (cursor) headers["Last-Event-ID"] = cursor;
    this.#expect(this.#timing.firstByte);
    const either = AbortSignal.any([signal, this.#end.signal]);
    this.#response = await this.#http.send(path, { headers, signal: either });
    if (this.#response.status === 204) return false;
    if (this.#response.headers.get("Content-Type")?.startsWith("text/event-stream")) return true;
    throw new Unreachable("the answer is no stream: something else answered in the server's place");
  }

  /**
   * Yield what each piece that arrives completes, often nothing, until the server ends the stream.
   * @returns {AsyncGenerator<StreamEvent[]>}
   */
  async *pieces() {
    const reader = /** @type {Response} */ (this.#response).body?.getReader();
    const sleepOn = onWake((isNetwork) => this.#doubt(isNetwork));
    try {
      for (;;) {
        const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
        if (done) return;
        this.#heardAt = performance.now();
        clearTimeout(this.#timer);
        yield this.#parser.push(value);
        this.#expect(this.#timing.silence);
      }
    } catch (error) {
      throw this.#end.signal.aborted ? this.#end.signal.reason : new Unreachable("the stream broke", { cause: error });
    } finally {
      sleepOn();
    }
  }

  /** End it, with its request and its timer. */
  close() {
    clearTimeout(this.#timer);
    this.#end.abort();
  }

  /** @param {number} milliseconds */
  #expect(milliseconds) {
    clearTimeout(this.#timer);
    const silent = new NoStream("the stream says nothing: it is dead, or held back on its way");
    this.#timer = setTimeout(() => this.#end.abort(silent), milliseconds);
  }

  /** @param {boolean} isNetwork */
  #doubt(isNetwork) {
    const isSilent = performance.now() - this.#heardAt > this.#timing.doubtful;
    if (isNetwork || isSilent) this.#end.abort(new Unreachable("the network was away, and the stream may be dead"));
  }
}
