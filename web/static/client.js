// @ts-check
/**
 * The client of Ghostless for browsers: a plain module without dependencies, to be loaded as it is.
 *
 *     import { Client } from "/static/client.js";
 *     const client = new Client();
 *     const { id } = await client.submit("video.thumbnails", { url });
 *     await client.watch([id], { onTask: (move) => show(move.state) });
 *
 * Every request is repeated by itself while the server does not answer; none has an effect twice.
 */

import { GhostlessError, ProblemError, Unreachable } from "./client/errors.js";
import { Http } from "./client/http.js";
import { Hub } from "./client/hub.js";
import { checkedId, checkedIds, FINAL, ID } from "./client/story.js";
import { TIMING } from "./client/timing.js";
import { Watch } from "./client/watch.js";

export { FINAL, GhostlessError, ID, ProblemError, Unreachable };

/**
 * `base` is where the server is, "/" unless it is served below a path. `token` is a token, or a function that gets a
 * fresh one. Tabs share one stream when base and `identity` are the same: by default the token; a page whose function
 * gets a new one each time says here whose it is, or null for a stream of its own.
 * @typedef {{base?: string | URL, token?: import("./client/token.js").Token, identity?: string | null,
 *   timing?: Partial<import("./client/timing.js").Timing>}} Options
 *
 * What a submit may say beside type and params, by the API's names.
 * @typedef {{queue?: string, id?: string, delay?: number, run_at?: number | string, timeout?: number,
 *   stall_timeout?: number, max_retries?: number, depends_on?: string[], owner?: string, metadata?: unknown,
 *   callback_url?: string, idempotencyKey?: string, signal?: AbortSignal}} SubmitOptions
 *
 * @typedef {{state?: string, type?: string, queue?: string, owner?: string, limit?: number, cursor?: string}} Filter
 * @typedef {import("./client/watch.js").Callbacks & {signal?: AbortSignal}} WatchOptions
 */

/**
 * The client of one server, as one user. Its calls throw GhostlessError, TypeError for what can be no id, or the reason
 * of a signal that is aborted.
 */
export class Client {
  #http;
  #hub;

  /** @param {Options} [options] */
  constructor({ base = "/", token = null, identity, timing } = {}) {
    this.#http = new Http(new URL(base, globalThis.location.href), token, { ...TIMING, ...timing });
    const own = typeof token === "function" ? null : (token ?? "");
    this.#hub = new Hub(this.#http, identity === undefined ? own : identity);
  }

  /**
   * Submit a task, once, however often it must be asked for. An own `idempotencyKey` makes it one task also over a
   * reload of the page.
   * @param {string} type
   * @param {Record<string, unknown>} [params]
   * @param {SubmitOptions} [options]
   * @returns {Promise<{id: string, state: string, created: boolean}>}
   */
  submit(type, params = {}, { idempotencyKey = newKey(), signal, ...wishes } = {}) {
    return this.#post("/api/tasks", { type, params, ...wishes }, signal, { "Idempotency-Key": idempotencyKey });
  }

  /**
   * Return a task as it is now.
   * @param {string} id
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<any>}
   */
  get(id, { signal } = {}) {
    return this.#http.patiently(() => this.#http.json(pathOf(id), { signal }), signal);
  }

  /**
   * Return every move of a task, oldest first.
   * @param {string} id
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<{task: string, entries: any[], cursor: string}>}
   */
  history(id, options) {
    return this.#about(id, "history", options);
  }

  /**
   * Say why a task is where it is, what happens next, and which actions are possible.
   * @param {string} id
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<{state: string, why: string, next: string, evidence: string[], actions: string[]}>}
   */
  explain(id, options) {
    return this.#about(id, "explain", options);
  }

  /**
   * Return which files a task's handler kept.
   * @param {string} id
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<{artifacts: {name: string, size: number, is_picture: boolean, url: string}[]}>}
   */
  async artifacts(id, options) {
    const listed = await this.#about(id, "artifacts", options);
    const urlOf = (/** @type {string} */ name) => `${this.#http.base}${pathOf(id)}/artifacts/${encodeURIComponent(name)}`;
    return { artifacts: listed.artifacts.map((/** @type {any} */ one) => ({ ...one, url: urlOf(one.name) })) };
  }

  /**
   * Return one page of tasks, the latest change first; `next` is the cursor of the next page, null when this is the last
   * one. With `owner` and another filter a page may be short, even empty, and not be the last.
   * @param {Filter} [filter]
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<{tasks: any[], next: string | null, last_event_id: string}>}
   */
  list(filter = {}, { signal } = {}) {
    const given = Object.entries(filter).flatMap(([name, value]) => (value === undefined ? [] : [[name, `${value}`]]));
    const path = `/api/tasks?${new URLSearchParams(given)}`;
    return this.#http.patiently(() => this.#http.json(path, { signal }), signal);
  }

  /** @param {string} id @param {{message?: string, signal?: AbortSignal}} [options] */
  cancel(id, options) {
    return this.#act(id, "cancel", options);
  }

  /** @param {string} id @param {{message?: string, signal?: AbortSignal}} [options] */
  pause(id, options) {
    return this.#act(id, "pause", options);
  }

  /** @param {string} id @param {{message?: string, signal?: AbortSignal}} [options] */
  resume(id, options) {
    return this.#act(id, "resume", options);
  }

  /** @param {string} id @param {{message?: string, signal?: AbortSignal}} [options] */
  retry(id, options) {
    return this.#act(id, "retry", options);
  }

  /**
   * Tell what happens to tasks: every move from the first one on, in order and once. Resolves with their ends when all
   * are final or gone, and with those known so far when the signal is aborted; rejects when the server refuses for
   * good. While it cannot be reached nothing is said but that (`onConnection`).
   *
   * `onReset` says that Redis lost or replaced what was told of a task, and that all of it is told anew.
   * @param {Iterable<string>} ids
   * @param {WatchOptions} [options]
   */
  async watch(ids, { signal, ...callbacks } = {}) {
    const watch = new Watch(checkedIds(ids), callbacks);
    if (watch.ids.size === 0 || signal?.aborted) return [];
    const stop = () => this.#hub.remove(watch);
    signal?.addEventListener("abort", stop);
    this.#hub.add(watch);
    return watch.done.finally(() => signal?.removeEventListener("abort", stop));
  }

  /**
   * Ask for an action, and return the task after it. Throws ProblemError; with 409 its `state` says why not.
   * @param {string} id
   * @param {"cancel" | "pause" | "resume" | "retry"} action
   * @param {{message?: string, signal?: AbortSignal}} [options]
   * @returns {Promise<any>}
   */
  async #act(id, action, { message, signal } = {}) {
    return this.#post(`${pathOf(id)}/${action}`, { message }, signal);
  }

  /**
   * @param {string} id
   * @param {string} what
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<any>}
   */
  #about(id, what, { signal } = {}) {
    return this.#http.patiently(() => this.#http.json(`${pathOf(id)}/${what}`, { signal }), signal);
  }

  /**
   * @param {string} path
   * @param {unknown} value
   * @param {AbortSignal} [signal]
   * @param {Record<string, string>} [headers]
   */
  #post(path, value, signal, headers = {}) {
    const body = JSON.stringify(value);
    const wish = { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body, signal };
    return this.#http.patiently(() => this.#http.json(path, wish), signal);
  }
}

/** @param {string} id */
function pathOf(id) {
  return `/api/tasks/${checkedId(id)}`;
}

/** A key that nobody else has; `randomUUID` is there only on https and on the machine itself. */
function newKey() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
