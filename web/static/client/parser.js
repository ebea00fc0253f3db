// @ts-check
/** A parser of server-sent events, by the standard of the WHATWG, for bytes that come in pieces. */

/** @typedef {{event: string, data: string, id: string}} StreamEvent */

export class EventParser {
  /** The cursor: the id of the last block that is whole, also of one without data. */
  lastEventId = "";
  /** Milliseconds after which the server wants to be asked again; null when it did not say. @type {number | null} */
  retry = null;

  #decoder = new TextDecoder(); // takes characters cut in two, and drops a byte order mark
  #rest = "";
  #afterCarriageReturn = false;
  #event = "";
  #id = "";
  /** @type {string[]} */
  #data = [];

  /**
   * Take the next bytes and return the events that they complete.
   * @param {Uint8Array} bytes
   * @returns {StreamEvent[]}
   */
  push(bytes) {
    let text = this.#decoder.decode(bytes, { stream: true });
    if (!text) return [];
    // A line that ended with CR is over; the LF that may follow belongs to it.
    if (this.#afterCarriageReturn && text.startsWith("\n")) text = text.slice(1);
    this.#afterCarriageReturn = text ? text.endsWith("\r") : false;
    const lines = (this.#rest + text).split(/\r\n|\n|\r/);
    this.#rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.#take(line));
  }

  /** @param {string} line */
  #take(line) {
    if (line === "") return this.#dispatch();
    const [, name, value] = /** @type {RegExpExecArray} */ (/^([^:]*)(?:: ?(.*))?$/su.exec(line));
    this.#set(name, value ?? "");
    return [];
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  #set(name, value) {
    if (name === "event") this.#event = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
  }

  #dispatch() {
    const event = { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id };
    const isEvent = this.#data.length > 0;
    this.lastEventId = this.#id;
    this.#event = "";
    this.#data = [];
    return isEvent ? [event] : [];
  }
}
