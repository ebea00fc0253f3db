// @ts-check
/** What a caller shows to the server: one text for good, or what a function gets, which may be away as any server. */

import { ProblemError, Unreachable } from "./errors.js";
import { within } from "./timing.js";

/**
 * A token, or a function that gets a fresh one.
 * @typedef {string | (() => string | Promise<string>) | null} Token
 */

const SENDABLE = /^[\x21-\x7e]+$/; // visible ASCII; of anything else `fetch` says only that the network failed

export class TokenSource {
  /** What is sent until it is dropped. @type {Promise<string> | null} */
  #asked = null;
  #token;
  #timeout;

  /**
   * @param {Token} token
   * @param {number} timeout - ms that the function may take
   */
  constructor(token, timeout) {
    const isRight = token === null || typeof token === "function" || (typeof token === "string" && isSendable(token));
    if (!isRight) throw new TypeError("token: visible ASCII text is expected, or a function that gets one, or null");
    this.#token = token;
    this.#timeout = timeout;
  }

  /** Whether there is a fresh one when this one is refused. */
  get isRenewable() {
    return typeof this.#token === "function";
  }

  /**
   * Return the token, null where none is to be sent. Throws ProblemError of the function, Unreachable, and the
   * signal's reason.
   * @param {AbortSignal} [signal]
   */
  async get(signal) {
    if (this.#token === null) return null;
    this.#asked ??= this.#ask();
    try {
      const token = await within(this.#asked, this.#timeout, signal);
      if (isSendable(token)) return token.trim();
      throw new Unreachable("the token function returned no token: visible ASCII text is expected");
    } catch (error) {
      signal?.throwIfAborted();
      this.drop();
      // Where tokens come from is a server too, and may be away for a moment like this one.
      throw error instanceof ProblemError ? error : new Unreachable("no token is to be had", { cause: error });
    }
  }

  /** Ask the function again before the next request. */
  drop() {
    this.#asked = null;
  }

  async #ask() {
    return typeof this.#token === "function" ? this.#token() : /** @type {string} */ (this.#token);
  }
}

/** @param {unknown} token - with what a file or an answer may have around it */
function isSendable(token) {
  return typeof token === "string" && SENDABLE.test(token.trim());
}
