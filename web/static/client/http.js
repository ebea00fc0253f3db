// @ts-check
/** Requests to the server: with a token that is renewed, in patience, and never taken for what a proxy says. */

import { isPassing, ProblemError, Unreachable } from "./errors.js";
import { fullJitter, pause } from "./timing.js";

/**
 * A token, or a function that gets a fresh one.
 * @typedef {string | (() => string | Promise<string>) | null} Token
 * @typedef {{method?: string, headers?: Record<string, string>, body?: string, signal?: AbortSignal,
 *   timeout?: number}} Wish
 */

export class Http {
  /** @type {Promise<string> | null} */
  #fresh = null;
  #token;

  /**
   * @param {URL} base - what all paths begin with
   * @param {Token} token
   * @param {import("./timing.js").Timing} timing
   */
  constructor(base, token, timing) {
    this.base = base.href.replace(/\/$/, "");
    this.timing = timing;
    this.#token = token;
  }

  /**
   * Return the answer's JSON; null when it has none (204, 304). Throws ProblemError, Unreachable.
   * @param {string} path
   * @param {Wish} [wish]
   */
  async json(path, wish = {}) {
    return this.read(await this.send(path, { timeout: this.timing.request, ...wish }), wish.signal);
  }

  /**
   * Read an answer's JSON; null when it has none.
   * @param {Response} response
   * @param {AbortSignal} [signal]
   */
  async read(response, signal) {
    if (response.status === 204 || response.status === 304) return null;
    try {
      return await response.json();
    } catch (error) {
      signal?.throwIfAborted();
      throw new Unreachable("the answer is not the server's: it is no JSON, or was cut off", { cause: error });
    }
  }

  /**
   * Repeat an attempt until it succeeds, is refused for good, or patience ends. Throws its last error.
   * @template T
   * @param {() => Promise<T>} attempt
   * @param {AbortSignal} [signal]
   * @returns {Promise<T>}
   */
  async patiently(attempt, signal) {
    const giveUpAt = performance.now() + this.timing.patience;
    for (let failures = 0; ; failures += 1) {
      try {
        return await attempt();
      } catch (error) {
        if (signal?.aborted || !isPassing(error) || performance.now() >= giveUpAt) throw error;
        await this.backOff(error, failures, signal);
      }
    }
  }

  /**
   * Wait after a failure: as long as the server said, then a random time more.
   * @param {unknown} error
   * @param {number} failures - how many there were before this one
   * @param {AbortSignal} [signal]
   */
  async backOff(error, failures, signal) {
    const { backoffFirst, backoffMost } = this.timing;
    const asked = error instanceof ProblemError ? error.retryAfter : null;
    if (asked) await pause(asked * 1000, signal);
    await pause(fullJitter(failures, backoffFirst, backoffMost), signal, true);
  }

  /**
   * Return an answer that is no refusal; a token that is refused is renewed once. Throws ProblemError, Unreachable.
   * @param {string} path
   * @param {Wish} wish
   */
  async send(path, wish) {
    const response = await this.#once(path, wish);
    if (response.status === 401 && typeof this.#token === "function") {
      await response.body?.cancel();
      this.#fresh = null;
      return this.#accepted(await this.#once(path, wish));
    }
    return this.#accepted(response);
  }

  /** @param {Response} response */
  async #accepted(response) {
    if (response.ok || response.status === 304) return response;
    throw await ProblemError.of(response);
  }

  /**
   * @param {string} path
   * @param {Wish} wish
   */
  async #once(path, { timeout, signal, headers, ...wish }) {
    const limits = [signal, timeout ? AbortSignal.timeout(timeout) : undefined].filter((one) => one !== undefined);
    const authorization = await this.#authorization(signal);
    try {
      return await fetch(this.base + path, {
        ...wish,
        headers: { ...headers, ...authorization },
        signal: AbortSignal.any(limits),
        cache: "no-store",
      });
    } catch (error) {
      signal?.throwIfAborted();
      throw new Unreachable("no answer came", { cause: error });
    }
  }

  /**
   * @param {AbortSignal} [signal]
   * @returns {Promise<Record<string, string>>}
   */
  async #authorization(signal) {
    if (!this.#token) return {};
    try {
      this.#fresh ??= Promise.resolve(typeof this.#token === "function" ? this.#token() : this.#token);
      return { Authorization: `Bearer ${await this.#fresh}` };
    } catch (error) {
      this.#fresh = null;
      signal?.throwIfAborted();
      // Where tokens come from is a server too, and may be away for a moment like this one.
      throw error instanceof ProblemError ? error : new Unreachable("no token is to be had", { cause: error });
    }
  }
}
