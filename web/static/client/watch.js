// @ts-check
/** One call of `watch`: which tasks it is about, and whom to tell. */

/** @typedef {import("./errors.js").ProblemError} ProblemError */
/** @typedef {import("./story.js").Move} Move */
/** @typedef {import("./story.js").Story} Story */

/**
 * The end of a task: its last known state, and why it is gone when the server has it no longer.
 * @typedef {{id: string, state: string | null, error: ProblemError | null}} End
 *
 * How the server is reached: by a stream (`live`), by polling, or not now (`reconnecting`: what is shown may be old,
 * and is no worse than that). `age` is for how many ms nothing was heard of the server; `tasks` holds the last known
 * move of each task.
 * @typedef {"live" | "polling" | "reconnecting"} Status
 * @typedef {{status: Status, age: number, tasks: Record<string, Move | null>}} Connection
 *
 * @typedef {{
 *   onTask?: (move: Move) => void,
 *   onProgress?: (progress: {id: string, attempt: number, progress: number, message: string, at: number}) => void,
 *   onLog?: (line: {id: string, attempt: number, line: string}) => void,
 *   onReset?: (id: string) => void,
 *   onEnd?: (end: End) => void,
 *   onConnection?: (connection: Connection) => void,
 * }} Callbacks
 */

export class Watch {
  /** @type {Map<string, End>} */
  #ends = new Map();
  #callbacks;
  /** @type {(ends: End[]) => void} */
  #resolve = () => {};
  /** @type {(error: unknown) => void} */
  #reject = () => {};

  /**
   * @param {string[]} ids
   * @param {Callbacks} callbacks
   */
  constructor(ids, callbacks) {
    this.ids = new Set(ids);
    this.#callbacks = callbacks;
    /** @type {Promise<End[]>} */
    this.done = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** @param {Move} move */
  move(move) {
    if (this.ids.has(move.id)) this.#call("onTask", move);
  }

  /**
   * @param {"progress" | "log"} kind
   * @param {any} data
   */
  live(kind, data) {
    if (this.ids.has(data.id)) this.#call(kind === "progress" ? "onProgress" : "onLog", data);
  }

  /** @param {string} id */
  reset(id) {
    if (this.ids.has(id)) this.#call("onReset", id);
  }

  /**
   * @param {Status} status
   * @param {number} age
   * @param {Map<string, Story>} stories
   */
  connection(status, age, stories) {
    const tasks = Object.fromEntries([...this.ids].map((id) => [id, stories.get(id)?.last ?? null]));
    this.#call("onConnection", { status, age, tasks });
  }

  /**
   * Tell which tasks have ended; true when all have.
   * @param {Map<string, Story>} stories
   */
  settle(stories) {
    for (const id of this.ids) {
      const story = stories.get(id);
      if (story?.isEnded && !this.#ends.has(id)) this.#end(id, story);
    }
    return this.#ends.size === this.ids.size;
  }

  /**
   * @param {string} id
   * @param {Story} story
   */
  #end(id, story) {
    const end = { id, state: story.last?.state ?? story.gone?.state ?? null, error: story.gone };
    this.#ends.set(id, end);
    this.#call("onEnd", end);
  }

  /** Tell nothing any more. */
  finish() {
    this.#callbacks = {};
    this.#resolve([...this.#ends.values()]);
  }

  /** @param {unknown} error */
  fail(error) {
    this.#callbacks = {};
    this.#reject(error);
  }

  /**
   * @param {keyof Callbacks} name
   * @param {any} value
   */
  #call(name, value) {
    try {
      this.#callbacks[name]?.(value);
    } catch (error) {
      reportError(error); // a fault of the page must not keep others from hearing
    }
  }
}
