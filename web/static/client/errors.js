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

/** No stream is to be had, or none any more, which says nothing of the server itself. */
export class NoStream extends Unreachable {
  /**
   * @param {string} message
   * @param {number} [again] - after how many ms the server wants to be asked for one again, if it said so
   */
  constructor(message, again) {
    super(message);
    this.again = again;
  }
}

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
    if (!isProblem) await response.body?.cancel().catch(() => {}); // rejects where the connection broke
    return new ProblemError(response.status, problem, secondsOf(response.headers));
  }
}

/**
 * What an error says of the request, the one place where that is judged:
 *
 * - `away`: no answer of the server, or one that says "not now". A call is repeated in patience; a watch goes on.
 * - `fault`: an answer to something else, as the page of a proxy or a fault of the server's own. A call fails, as asking
 *   again at once would not help; a watch goes on, as nothing is known of its tasks. A proxy's 401 is one too.
 * - `gone`: the server has no such task, or no longer. A call fails; a watch ends for this task.
 * - `refused`: the server's last word, or a fault of the page's own. A call fails, and a watch too.
 * @param {unknown} error
 * @returns {"away" | "fault" | "gone" | "refused"}
 */
export function verdict(error) {
  if (error instanceof Unreachable) return "away";
  if (!(error instanceof ProblemError)) return "refused";
  const { status, type } = error;
  const isOurs = type.startsWith("urn:ghostless:");
  if (PASSING.has(status) || (status >= 500 && !isOurs)) return "away";
  if (GONE.has(type)) return "gone";
  return isOurs && status < 500 ? "refused" : "fault";
}

/**
 * Tell whether to ask again is of no use, ever.
 * @param {unknown} error
 */
export function isForGood(error) {
  return ["gone", "refused"].includes(verdict(error));
}

/**
 * Return for how many ms the server wants to be left alone after an error; 0 when it does not say.
 * @param {unknown} error
 */
export function restAfter(error) {
  return error instanceof ProblemError ? (error.retryAfter ?? 0) * 1000 : 0;
}

/**
 * Read for how many seconds the server wants to be left alone: a number, or a date by the server's own clock, since
 * that of this machine may be wrong. Null when it does not say.
 * @param {Headers} headers
 */
function secondsOf(headers) {
  const text = headers.get("Retry-After") ?? "";
  if (/^\d+$/.test(text)) return Number(text);
  const seconds = (Date.parse(text) - Date.parse(headers.get("Date") ?? "")) / 1000;
  return Number.isNaN(seconds) ? null : Math.max(0, seconds);
}
