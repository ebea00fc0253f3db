// @ts-check
/** What can go wrong, all of one root. What was aborted throws the signal's own reason instead, as `fetch` does. */

/**
 * A problem document (RFC 9457), with what Ghostless adds to it.
 * @typedef {{type?: string, title?: string, status?: number, detail?: string, task?: string, state?: string,
 *   errors?: {pointer?: string, parameter?: string, detail: string}[]}} Problem
 */

const PASSING = new Set([408, 429, 502, 503, 504]);
const GONE = new Set(["urn:ghostless:task-not-found", "urn:ghostless:task-purged"]);

/** The root of all errors of the client. */
export class GhostlessError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** No answer of the server came: what was asked for may have been done or not. It is safe to ask again. */
export class Unreachable extends GhostlessError {}

/** A stream said nothing for so long that it must be dead, or held back by a proxy. */
export class Silent extends Unreachable {}

/** The server, or a proxy before it, refused. */
export class ProblemError extends GhostlessError {
  /**
   * @param {number} status - the answer's status
   * @param {Problem | null} problem - what the server says; null when something else answered in its place
   * @param {number | null} [retryAfter] - after how many seconds to ask again
   */
  constructor(status, problem, retryAfter = null) {
    super(problem?.detail ?? problem?.title ?? `status ${status}, and nothing said by Ghostless`);
    this.status = status;
    this.problem = problem;
    this.retryAfter = retryAfter;
    this.type = problem?.type ?? "about:blank";
    this.title = problem?.title ?? "";
    this.errors = problem?.errors ?? [];
    /** The state that a task is in, when that is why it was refused. */
    this.state = problem?.state ?? null;
  }

  /**
   * Read a refusal.
   * @param {Response} response
   */
  static async of(response) {
    const isProblem = response.headers.get("Content-Type")?.startsWith("application/problem+json");
    const problem = isProblem ? await response.json().catch(() => null) : null;
    if (!isProblem) await response.body?.cancel();
    return new ProblemError(response.status, problem, secondsOf(response.headers.get("Retry-After")));
  }

  /** Whether the server says that there is no such task, or no longer. */
  get isGone() {
    return GONE.has(this.type);
  }
}

/**
 * Tell whether the same request may be answered in a while.
 * @param {unknown} error
 */
export function isPassing(error) {
  if (!(error instanceof ProblemError)) return error instanceof Unreachable;
  return PASSING.has(error.status) || (error.status >= 500 && !error.problem);
}

/**
 * Tell whether an error is the server's last word. A page that a proxy shows in its place is not, and neither is a
 * server's own fault.
 * @param {unknown} error
 */
export function isLastWord(error) {
  if (!(error instanceof ProblemError)) return !(error instanceof Unreachable);
  return error.status === 401 || (error.problem !== null && error.status < 500 && !PASSING.has(error.status));
}

/**
 * Read a Retry-After header, which holds seconds or a date.
 * @param {string | null} text
 */
function secondsOf(text) {
  if (text === null) return null;
  const seconds = /^\d+$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : null;
}
