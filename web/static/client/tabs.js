// @ts-check
/**
 * Tabs of one user share a stream: the one that holds a lock leads, follows the tasks of all, and tells the others.
 *
 * Each follower says again and again what it wants and how much of it it knows. So a leader that takes over knows
 * everything at once, what a tab missed is made up for, and a leader that does not answer is noticed. The question
 * comes from the follower, since a hidden tab still hears messages, but its clock may stand for a minute.
 */

/** @typedef {import("./hub.js").Message} Message */

/**
 * For each task that a tab wants, up to where it knows it.
 * @typedef {Record<string, string | null>} Known
 *
 * @typedef {{kind: "want", from: string, known: Known} | {kind: "bye", from: string} | {kind: "lead"} | {kind: "beat"}
 *   | {kind: "told", message: Message}} Note
 *
 * @typedef {{known: () => Known, answer: (known: Known) => Message[], take: (message: Message) => void,
 *   serve: (isServing: boolean) => void, sync: () => void}} Owner
 */

const UNANSWERED = 2; // questions, before a leader counts as frozen
const FORGOTTEN = 180_000; // ms after which a silent tab wants nothing any more; a hidden one speaks once a minute

export class Tabs {
  #me = String(Math.random());
  #channel;
  #timer;
  #owner;
  #end = new AbortController();
  #isLeader = false;
  #unanswered = 0;
  /** What the other tabs want. @type {Map<string, {ids: string[], at: number}>} */
  #others = new Map();

  /**
   * @param {string} name - of what they share
   * @param {number} beat - ms between two questions
   * @param {Owner} owner
   */
  constructor(name, beat, owner) {
    this.#owner = owner;
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }) => this.#hear(data);
    this.#timer = setInterval(() => this.#tick(), beat);
    globalThis.addEventListener("pagehide", this.#leave);
    navigator.locks
      .request(name, { signal: this.#end.signal }, () => this.#lead())
      .catch(() => this.#end.signal.aborted || owner.serve(true));
    this.want();
  }

  /**
   * Return the name of what tabs share that see the same; null where they cannot share.
   * @param {string} base
   * @param {string | null} identity
   */
  static async nameFor(base, identity) {
    // Browsers have these only where the connection is safe: on https, and on the machine itself.
    const canShare = globalThis.BroadcastChannel && globalThis.navigator?.locks && globalThis.crypto?.subtle;
    if (!canShare || identity === null) return null;
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`${base}\n${identity}`));
    return `ghostless ${btoa(String.fromCharCode(...new Uint8Array(digest)))}`;
  }

  /** The tasks that other tabs want of this one. */
  get wanted() {
    return this.#isLeader ? [...this.#others.values()].flatMap(({ ids }) => ids) : [];
  }

  /**
   * Tell the other tabs, if this one leads.
   * @param {Message} message
   */
  tell(message) {
    if (this.#isLeader) this.#post({ kind: "told", message });
  }

  /** Say what this tab wants, if another one leads. */
  want() {
    if (!this.#isLeader) this.#post({ kind: "want", from: this.#me, known: this.#owner.known() });
  }

  close() {
    this.#leave();
    this.#end.abort();
    clearInterval(this.#timer);
    globalThis.removeEventListener("pagehide", this.#leave);
    this.#channel.close();
  }

  #leave = () => this.#post({ kind: "bye", from: this.#me });

  /** @param {Note} note */
  #post(note) {
    this.#channel.postMessage(note);
  }

  /** Lead until this tab closes or needs nothing any more. @returns {Promise<void>} */
  #lead() {
    return new Promise((resolve) => {
      if (this.#end.signal.aborted) return resolve();
      this.#end.signal.addEventListener("abort", () => resolve());
      this.#isLeader = true;
      this.#post({ kind: "lead" });
      this.#owner.serve(true);
    });
  }

  #tick() {
    if (this.#isLeader) return this.#forget();
    if (this.#unanswered++ >= UNANSWERED) this.#owner.serve(true);
    this.want();
  }

  #forget() {
    for (const [tab, { at }] of this.#others) {
      if (performance.now() - at > FORGOTTEN) this.#others.delete(tab);
    }
    this.#owner.sync();
  }

  /** @param {Note} note */
  #hear(note) {
    if (this.#isLeader) this.#hearAsLeader(note);
    else if (note.kind === "lead") this.want();
    else if (note.kind === "beat" || note.kind === "told") this.#hearLeader(note);
  }

  /** @param {Note} note */
  #hearAsLeader(note) {
    if (note.kind === "want") {
      this.#others.set(note.from, { ids: Object.keys(note.known), at: performance.now() });
      this.#owner.sync();
      this.#post({ kind: "beat" });
      for (const message of this.#owner.answer(note.known)) this.tell(message);
    } else if (note.kind === "bye" && this.#others.delete(note.from)) this.#owner.sync();
  }

  /** @param {{kind: "beat"} | {kind: "told", message: Message}} note */
  #hearLeader(note) {
    this.#unanswered = 0;
    this.#owner.serve(false);
    if (note.kind === "told") this.#owner.take(note.message);
  }
}
