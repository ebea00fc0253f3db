// @ts-check
/** Where all watches of a client meet: what is known of their tasks, and who finds out more, this tab or another. */

import { isLastWord, ProblemError } from "./errors.js";
import { Feed, TASKS_LIMIT } from "./feed.js";
import { Lookup } from "./lookup.js";
import { isAfter, Story } from "./story.js";
import { Tabs } from "./tabs.js";
import { pause } from "./timing.js";

/**
 * What is learnt of tasks, in one tab or from another one.
 * @typedef {import("./errors.js").Problem} Problem
 * @typedef {import("./story.js").Move} Move
 * @typedef {import("./watch.js").Watch} Watch
 * @typedef {{kind: "move", move: Move}
 *   | {kind: "whole", id: string, moves: Move[], since: string | null}
 *   | {kind: "progress" | "log", data: any}
 *   | {kind: "gone", id: string, status: number, problem: Problem | null}
 *   | {kind: "over", ids: string[]}
 *   | {kind: "connection", status: import("./watch.js").Status, age?: number}} Message
 */

const STREAMS = 3; // of one tab: a browser has six connections for all tabs of a site

export class Hub {
  /** @type {Map<string, Story>} */
  #stories = new Map();
  /** @type {Set<Watch>} */
  #watches = new Set();
  /** @type {Feed[]} */
  #feeds = [];
  /** @type {Tabs | null} */
  #tabs = null;
  /** Aborted when this tab follows its tasks no longer by itself. @type {AbortController | null} */
  #serving = null;
  /** Aborted when there is nothing to watch. @type {AbortController | null} */
  #life = null;
  #isConfirming = false;
  /** @type {import("./watch.js").Status | null} */
  #status = null;
  #heardAt = Date.now();
  #http;
  #identity;

  /**
   * @param {import("./http.js").Http} http
   * @param {string | null} identity - tabs of the same one share a stream; null shares with nobody
   */
  constructor(http, identity) {
    this.#http = http;
    this.#identity = identity;
    this.listener = { stories: this.#stories, tell: this.#tell.bind(this), heard: this.#heard.bind(this) };
  }

  /** @param {Watch} watch */
  add(watch) {
    this.#watches.add(watch);
    for (const id of watch.ids) {
      const story = this.#stories.get(id);
      if (story) story.isOver = false; // it may have been taken up again since
      for (const move of story?.moves ?? []) watch.move(move);
    }
    if (this.#status) watch.connection(this.#status, this.#age, this.#stories);
    if (this.#life) this.#sync();
    else void this.#start();
  }

  /** @param {Watch} watch */
  remove(watch) {
    watch.finish();
    if (this.#watches.delete(watch)) this.#sync();
  }

  // Its life: from the first watch to the last

  async #start() {
    const life = (this.#life = new AbortController());
    const name = await Tabs.nameFor(this.#http.base, this.#identity);
    if (life.signal.aborted) return;
    if (name === null) this.#serve(true);
    else this.#tabs = new Tabs(name, this.#http.timing.beat, this.#asOwner());
    this.#sync();
  }

  #stop() {
    this.#life?.abort();
    this.#life = null;
    this.#serve(false);
    this.#tabs?.close();
    this.#tabs = null;
    this.#stories.clear();
    this.#status = null;
  }

  /** @param {unknown} error */
  #fail(error) {
    for (const watch of this.#watches) watch.fail(error);
    this.#watches.clear();
    this.#stop();
  }

  /** Bring what is followed in line with what is wanted. */
  #sync() {
    if (this.#watches.size === 0) return this.#stop();
    const wanted = new Set([...this.#watches].flatMap((watch) => [...watch.ids]).concat(this.#tabs?.wanted ?? []));
    for (const id of this.#stories.keys()) if (!wanted.has(id)) this.#stories.delete(id);
    const added = [...wanted].filter((id) => !this.#stories.has(id));
    for (const id of added) this.#stories.set(id, new Story());
    if (this.#serving) this.#cover(added);
    else if (added.length) this.#tabs?.want();
  }

  // Following

  /** @param {boolean} isServing - whether this tab follows its tasks by itself */
  #serve(isServing) {
    if (isServing === (this.#serving !== null)) return;
    this.#serving?.abort();
    this.#serving = isServing ? new AbortController() : null;
    this.#feeds = [];
    if (isServing) this.#sync();
  }

  /**
   * Let a feed follow each task that none follows, and those that were just added from their first move on.
   * @param {string[]} added
   */
  #cover(added) {
    for (const [id, story] of this.#stories) {
      const isFollowed = this.#feeds.some((feed) => feed.has(id));
      if (!story.isEnded && (!isFollowed || added.includes(id))) this.#feedFor(id).add(id);
    }
  }

  /** @param {string} id */
  #feedFor(id) {
    const found = this.#feeds.find((feed) => feed.has(id)) ?? this.#feeds.find((feed) => feed.size < TASKS_LIMIT);
    if (found) return found;
    const last = this.#feeds.at(-1);
    return last && this.#feeds.length >= STREAMS ? last : this.#newFeed();
  }

  #newFeed() {
    const feed = new Feed(this.#http, this.listener);
    this.#feeds.push(feed);
    void this.#run(feed);
    return feed;
  }

  /** @param {Feed} feed */
  async #run(feed) {
    const signal = /** @type {AbortController} */ (this.#serving).signal;
    await null; // it gets its tasks first
    try {
      await feed.run(signal);
    } catch (error) {
      if (!signal.aborted) return this.#fail(error);
    }
    if (signal.aborted) return;
    this.#feeds = this.#feeds.filter((other) => other !== feed);
    this.#cover([]);
  }

  // Telling

  /** @param {Message} message - from a feed of this tab */
  #tell(message) {
    const isNews = this.#note(message);
    if (isNews) this.#tabs?.tell(message.kind === "connection" ? { ...message, age: this.#age } : message);
    this.#settle(); // last: it may be the end of this tab's part
  }

  /** @param {Message} message - from another tab */
  #hear(message) {
    this.#heard();
    this.#note(message);
    this.#settle();
  }

  #heard() {
    this.#heardAt = Date.now();
  }

  get #age() {
    return Date.now() - this.#heardAt;
  }

  /**
   * Take what was learnt; false when it is no news.
   * @param {Message} message
   * @returns {boolean}
   */
  #note(message) {
    switch (message.kind) {
      case "move":
        return this.#moved(message.move);
      case "whole":
        return this.#whole(message.id, message.moves, message.since);
      case "gone":
        return this.#gone(message.id, new ProblemError(message.status, message.problem));
      case "over":
        for (const id of message.ids) this.#over(id);
        return true;
      case "connection":
        return this.#connected(message.status, message.age);
      default:
        for (const watch of this.#watches) watch.live(message.kind, message.data);
        return true;
    }
  }

  /** @param {Move} move */
  #moved(move) {
    if (!this.#stories.get(move.id)?.takes(move)) return false;
    for (const watch of this.#watches) watch.move(move);
    return true;
  }

  /**
   * @param {string} id
   * @param {Move[]} moves
   * @param {string | null} since
   */
  #whole(id, moves, since) {
    const story = this.#stories.get(id);
    if (!story) return false;
    const { isAnew, news } = story.takesWhole(moves, since);
    for (const watch of this.#watches) {
      if (isAnew) watch.reset(id);
      for (const move of news) watch.move(move);
    }
    return true;
  }

  /**
   * @param {string} id
   * @param {ProblemError} error
   */
  #gone(id, error) {
    const story = this.#stories.get(id);
    if (story) story.gone = error;
    return true;
  }

  /** @param {string} id */
  #over(id) {
    const story = this.#stories.get(id);
    if (story?.isFinal) story.isOver = true;
  }

  /**
   * @param {import("./watch.js").Status} status
   * @param {number} [age]
   */
  #connected(status, age) {
    if (age !== undefined) this.#heardAt = Date.now() - age;
    if (status === this.#status && status !== "reconnecting") return false;
    this.#status = status;
    for (const watch of this.#watches) watch.connection(status, this.#age, this.#stories);
    return true;
  }

  // Ending

  #settle() {
    for (const watch of this.#watches) if (watch.settle(this.#stories)) this.remove(watch);
    if (!this.#isConfirming && this.#unconfirmed.length) void this.#confirm();
  }

  /** Tasks of watches that seem to be at their end, while the stream goes on for others. */
  get #unconfirmed() {
    const isFinal = (/** @type {string} */ id) => this.#stories.get(id)?.isFinal;
    const ids = [...this.#watches].flatMap((watch) => ([...watch.ids].every(isFinal) ? [...watch.ids] : []));
    return ids.filter((id) => !this.#stories.get(id)?.isEnded);
  }

  /** Ask whether what seems final is: a failure may be followed by a retry. The stream, if it ends, says so before. */
  async #confirm() {
    const signal = /** @type {AbortController} */ (this.#life).signal;
    this.#isConfirming = true;
    try {
      await pause(this.#http.timing.confirm, signal);
      const lookup = new Lookup(this.#http, this.listener);
      for (const id of this.#unconfirmed) lookup.ids.add(id);
      for (const id of [...lookup.ids]) await lookup.complete(id, signal);
      for (const [id] of lookup.stories) this.#over(id);
    } catch (error) {
      if (!signal.aborted && isLastWord(error)) this.#fail(error);
    }
    this.#isConfirming = false;
    if (!signal.aborted) this.#settle();
  }

  // Among tabs

  /** @returns {import("./tabs.js").Owner} */
  #asOwner() {
    return {
      known: () => this.#known(),
      answer: (known) => this.#answer(known),
      take: (message) => this.#hear(message),
      serve: (isServing) => this.#serve(isServing),
      sync: () => this.#sync(),
    };
  }

  #known() {
    return Object.fromEntries([...this.#stories].map(([id, { isKnown, cursor }]) => [id, isKnown ? cursor : null]));
  }

  /**
   * Return what a tab does not know yet of the tasks that it wants.
   * @param {import("./tabs.js").Known} known
   * @returns {Message[]}
   */
  #answer(known) {
    const messages = Object.entries(known).flatMap(([id, cursor]) => this.#news(id, cursor));
    return this.#status ? [...messages, { kind: "connection", status: this.#status, age: this.#age }] : messages;
  }

  /**
   * @param {string} id
   * @param {string | null} cursor
   * @returns {Message[]}
   */
  #news(id, cursor) {
    const story = this.#stories.get(id);
    if (!story) return [];
    if (story.gone) return [{ kind: "gone", id, status: story.gone.status, problem: story.gone.problem }];
    const isBehind = story.cursor !== null && (cursor === null || isAfter(story.cursor, cursor));
    /** @type {Message[]} */
    const whole = story.isKnown && isBehind ? [{ kind: "whole", id, moves: story.moves, since: null }] : [];
    return story.isOver ? [...whole, { kind: "over", ids: [id] }] : whole;
  }
}
