// @ts-check
/** Requests to the server: with a token that is renewed, in patience, and never taken for what a proxy says. */

import { ProblemError, restAfter, Unreachable, verdict } from "./errors.js";
import { fullJitter, pause } from "./timing.js";
import { TokenSource } from "./token.js";

/**
 * @typedef {{method?: string, headers?: Record<string, string>, body?: string, signal?: AbortSignal,
 *   timeout?: number}} Wish
 */

export class Http {
  #token;

  /**
   * @param {URL} base - what all paths begin with
   * @param {import("./token.js").Token} token
   * @param {import("./timing.js").Timing} timing
   */
  constructor(base, token, timing) {
    this.base = base.href.replace(/\/$/, "");
    this.timing = timing;
    this.#token = new TokenSource(token, timing.request);
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
        const left = giveUpAt - performance.now();
        if (signal?.aborted || verdict(error) !== "away" || left <= 0) throw error;
        await this.backOff(error, failures, signal, left);
      }
    }
  }

  /**
   * Wait after a failure: as long as the server said, and a random time more; no longer when the network is back, or
   * the page is looked at again.
   * @param {unknown} error
   * @param {number} failures - how many there were before this one
   * @param {AbortSignal} [signal]
   * @param {number} [most] - ms
   */
  async backOff(error, failures, signal, most = this.timing.patience) {
    const { backoffFirst, backoffMost } = this.timing;
    await pause(Math.min(most, restAfter(error) + fullJitter(failures, backoffFirst, backoffMost)), signal, true);
  }

  /**
   * Wait until there is a token to send, or it is known that there is none to be had. Throws Unreachable.
   * @param {AbortSignal} signal
   */
  async awaitToken(signal) {
    await this.#token.get(signal);
  }

  /**
   * Return an answer that is no refusal; a token that is refused is renewed once. Throws ProblemError, Unreachable.
   * @param {string} path
   * @param {Wish} wish
   */
  async send(path, wish) {
    const response = await this.#once(path, wish);
    if (response.status === 401 && this.#token.isRenewable) {
      await response.body?.cancel().catch(() => {}); // rejects where the connection broke
      this.#token.drop();
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
    const token = await this.#token.get(signal);
    try {
      return await fetch(this.base + path, {
        ...wish,
        headers: token === null ? headers : { ...headers, Authorization: `Bearer ${token}` },
        signal: AbortSignal.any(limits),
        cache: "no-store",
      });
    } catch (error) {
      signal?.throwIfAborted();
      this.#token.drop(); // `fetch` does not say why: it may be that
      throw new Unreachable("no answer came", { cause: error });
    }
  }
}
