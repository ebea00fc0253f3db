// @ts-check
/** Following by a stream: what happens is told as it happens, and a cut stream goes on where it was cut. */

import { Unreachable } from "./errors.js";
import { EventStream } from "./event_stream.js";
import { isAfter } from "./story.js";
import { pause } from "./timing.js";

/** @typedef {import("./lookup.js").Lookup} Lookup */
/** @typedef {import("./parser.js").StreamEvent} StreamEvent */

export class Live {
  /** Whether the last attempt got as far as the first block. */
  wasOpened = false;
  /** Behind what was told. @type {string | null} */
  #cursor = null;
  #lookup;

  /** @param {Lookup} lookup */
  constructor(lookup) {
    this.#lookup = lookup;
  }

  /**
   * Follow by one stream to its end; true when all tasks are final. Throws what cuts it.
   * @param {AbortSignal} signal
   */
  async run(signal) {
    this.wasOpened = false;
    const stream = new EventStream(this.#lookup.http);
    try {
      const isOver = (await this.#follow(stream, signal)) && (await this.#lookup.isOver(signal));
      if (!isOver) await this.#rest(stream, signal);
      return isOver;
    } finally {
      stream.close();
    }
  }

  /**
   * Read a stream to its end; true when the server says that nothing more will come.
   * @param {EventStream} stream
   * @param {AbortSignal} signal
   */
  async #follow(stream, signal) {
    this.#cursor ??= this.#oldest();
    const start = this.#cursor;
    if (!(await stream.open(this.#path(), start, signal))) return true;
    for await (const events of stream.pieces()) {
      if (!this.wasOpened && stream.lastEventId) await this.#join(start, signal);
      this.#lookup.heard();
      for (const event of events) if (await this.#take(event, signal)) return true;
      this.#cursor = stream.lastEventId || this.#cursor;
    }
    return false;
  }

  #path() {
    const tasks = [...this.#lookup.ids].sort().map((id) => ["task", id]);
    return `/api/events?${new URLSearchParams(tasks)}`;
  }

  /** The place up to which all known tasks were told: from there on goes who takes over from another tab. */
  #oldest() {
    let oldest = null;
    for (const [, { cursor }] of this.#lookup.stories) {
      if (cursor && (!oldest || isAfter(oldest, cursor))) oldest = cursor;
    }
    return oldest;
  }

  /**
   * The stream is listened to from here on; now read what it does not tell.
   * @param {string | null} start
   * @param {AbortSignal} signal
   */
  async #join(start, signal) {
    for (const [, story] of this.#lookup.stories) {
      // Without a cursor the stream tells everything from the first move on, with one only what is behind it.
      if (!story.last) story.isKnown = start === null;
    }
    await this.#lookup.completeAll(signal);
    this.wasOpened = true;
    this.#lookup.tell({ kind: "connection", status: "live" });
  }

  /**
   * Take one event; true at the end of all tasks. What an event of another name means, only newer clients know.
   * @param {StreamEvent} event
   * @param {AbortSignal} signal
   */
  async #take({ event, data, id }, signal) {
    if (event === "task") this.#lookup.tell({ kind: "move", move: { ...parsed(data), cursor: id } });
    if (event === "progress" || event === "log") this.#lookup.tell({ kind: event, data: parsed(data) });
    if (event === "reset") {
      this.#lookup.doubt();
      await this.#lookup.completeAll(signal);
    }
    this.#cursor = id || this.#cursor; // not before it was told: who is cut off asks for the event again
    return event === "end";
  }

  /**
   * Wait until the server wants to be asked again.
   * @param {EventStream} stream
   * @param {AbortSignal} signal
   */
  async #rest(stream, signal) {
    await pause(stream.retry, signal, true);
    if (!this.wasOpened) throw new Unreachable("the server takes no further stream now");
  }
}

/** @param {string} data */
function parsed(data) {
  try {
    return JSON.parse(data);
  } catch (error) {
    throw new Unreachable("an event was garbled on its way", { cause: error });
  }
}
