// @ts-check
/** What is known of one task: all its moves, in their order and each once, wherever they came from. */

/**
 * One move of a task: what happened, and the state it is in since. `cursor` is its place in the history.
 * @typedef {{id: string, type: string, queue: string, owner: string | null, state: string, from: string | null,
 *   event: string, attempt: number, reason: string, message: string, actor: string, at: number, cursor: string}} Move
 */

/** What a task's id may be. */
export const ID = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Return an id when it is one. Throws TypeError; the server would refuse it with all others that are asked for.
 * @param {unknown} id
 */
export function checkedId(id) {
  if (typeof id === "string" && ID.test(id)) return id;
  throw new TypeError(`the id of a task is expected, 1 to 64 letters, digits, "_" and "-"; got ${shown(id)}`);
}

/**
 * Return the ids of a list. Throws TypeError.
 * @param {unknown} ids
 */
export function checkedIds(ids) {
  const isList = typeof ids === "object" && ids !== null && Symbol.iterator in ids;
  if (isList) return [.../** @type {Iterable<unknown>} */ (ids)].map(checkedId);
  throw new TypeError(`a list of ids is expected, as in watch([id]); got ${shown(ids)}`);
}

/** @param {unknown} value */
function shown(value) {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

/** States after which nothing happens by itself. */
export const FINAL = new Set(["SUCCESS", "FAILED", "CANCELLED", "TIMEOUT_CANCELLED"]);

/**
 * Tell whether a place in the history is behind another one of the same database.
 * @param {string} cursor - `<epoch>.<milliseconds>-<sequence>`
 * @param {string} other
 */
export function isAfter(cursor, other) {
  const [epoch, ...place] = cursor.split(/[.-]/);
  const [otherEpoch, ...otherPlace] = other.split(/[.-]/);
  if (epoch !== otherEpoch) return false;
  return (compare(place[0], otherPlace[0]) || compare(place[1], otherPlace[1])) > 0;
}

/**
 * Compare two numbers that may be longer than JavaScript counts.
 * @param {string} one
 * @param {string} other
 */
function compare(one, other) {
  return one.length - other.length || Number(one > other) - Number(one < other);
}

/**
 * Read an answer of `/api/tasks/{id}/history` as moves.
 * @param {{cursor: string, entries: any[]}} answer
 * @returns {Move[]}
 */
export function movesOf({ cursor, entries }) {
  const [epoch] = cursor.split(".");
  return entries.map(({ id, task, to, ...entry }) => ({ ...entry, id: task, state: to, cursor: `${epoch}.${id}` }));
}

export class Story {
  /** @type {Move[]} */
  moves = [];
  /** Whether all moves up to the last one are there; until then a single one cannot be told in its order. */
  isKnown = false;
  /** Whether the server said that nothing more will come. */
  isOver = false;
  /** Why the server has no such task. @type {import("./errors.js").ProblemError | null} */
  gone = null;

  /** @returns {Move | undefined} */
  get last() {
    return this.moves.at(-1);
  }

  get cursor() {
    return this.last?.cursor ?? null;
  }

  get isFinal() {
    return this.gone !== null || FINAL.has(this.last?.state ?? "");
  }

  get isEnded() {
    return this.gone !== null || this.isOver;
  }

  /**
   * Take a move that just came; tell whether it is the next one, and not one that was told before.
   * @param {Move} move
   */
  takes(move) {
    if (!this.isKnown || (this.last && !isAfter(move.cursor, this.last.cursor))) return false;
    this.moves.push(move);
    this.isOver = false;
    return true;
  }

  /**
   * Take the whole history, as it was read. It is true from `since` on: the last move that was known when it was asked
   * for. Where that is missing, Redis lost or replaced what was told, and all of it is told anew. Without `since` it
   * may be older than what is known, and only adds to it.
   * @param {Move[]} moves
   * @param {string | null} since
   * @returns {{isAnew: boolean, news: Move[]}}
   */
  takesWhole(moves, since) {
    const isAnew = this.moves.length > 0 && since !== null && moves.every((move) => move.cursor !== since);
    if (isAnew) this.moves = [];
    this.isKnown = true;
    return { isAnew, news: moves.filter((move) => this.takes(move)) };
  }
}
