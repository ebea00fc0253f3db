// @ts-check
/**
 * Where all watches of a client meet, and who follows their tasks: this tab, or another one that tells it.
 *
 *     Watch ... Watch      one call of `watch` each: which tasks, whom to tell
 *          Board           a Story for each task: its moves so far; tells the watches what is news
 *           Hub            starts and ends all below as watches come and go
 *       /         \
 *    Tabs          Feed    in the tab that leads: follows up to 50 tasks at the server, one of at most three
 *  to and from    /    \
 *  other tabs  Live    Poll      by a stream, or without one; Feed chooses
 *                 \    /
 *                 Lookup         reads a whole history, where the moves before are not known
 *                  Http          one request
 *
 * What Live, Poll and Lookup learn goes up as a Message, through `tell`, and so does what another tab learnt.
 */

import { Board } from "./board.js";
import { isForGood } from "./errors.js";
import { Feed, TASKS_LIMIT } from "./feed.js";
import { Lookup } from "./lookup.js";
import { Tabs } from "./tabs.js";
import { pause } from "./timing.js";

/** @typedef {import("./board.js").Message} Message */
/** @typedef {import("./watch.js").Watch} Watch */

const STREAMS = 3; // of one tab: a browser has six connections for all tabs of a site

export class Hub {
  #board = new Board();
  /** @type {Feed[]} */
  #feeds = [];
  /** @type {Tabs | null} */
  #tabs = null;
  /** Aborted when there is nothing to watch. @type {AbortController | null} */
  #life = null;
  /** Aborted when another tab follows the tasks. @type {AbortController | null} */
  #serving = null;
  #isConfirming = false;
  /** @type {import("./lookup.js").Listener} */
  #listener;
  #http;
  #identity;

  /**
   * @param {import("./http.js").Http} http
   * @param {string | null} identity - tabs of the same one share a stream; null shares with nobody
   */
  constructor(http, identity) {
    this.#http = http;
    this.#identity = identity;
    this.#listener = {
      stories: this.#board.stories,
      tell: (message) => this.#tell(message),
      heard: () => this.#board.heard(),
    };
  }

  /** @param {Watch} watch */
  add(watch) {
    this.#board.add(watch);
    if (!this.#life) return void this.#start();
    this.#sync();
    this.#settle();
  }

  /** @param {Watch} watch */
  remove(watch) {
    watch.finish();
    if (this.#board.watches.delete(watch)) this.#sync();
  }

  // Its life: from the first watch to the last

  async #start() {
    const { signal } = (this.#life = new AbortController());
    const name = await Tabs.nameFor(this.#http.base, this.#identity);
    if (signal.aborted) return;
    if (name === null) this.#startAlone(signal);
    else this.#tabs = new Tabs(name, this.#http.timing.beat, this.#asOwner());
    this.#sync();
  }

  /**
   * Tabs that cannot share have six connections together: one that nobody looks at leaves them to others.
   * @param {AbortSignal} signal
   */
  #startAlone(signal) {
    const look = () => this.#feeds.forEach((feed) => feed.rest(this.#isUnseen));
    globalThis.document?.addEventListener("visibilitychange", look, { signal });
    this.#serve(true);
  }

  get #isUnseen() {
    return this.#tabs === null && globalThis.document?.visibilityState === "hidden";
  }

  #stop() {
    this.#life?.abort();
    this.#life = null;
    this.#serve(false);
    this.#tabs?.close();
    this.#tabs = null;
    this.#board.clear();
  }

  /** @param {unknown} error */
  #fail(error) {
    for (const watch of this.#board.watches) watch.fail(error);
    this.#stop();
  }

  /** Bring what is followed in line with what is wanted. */
  #sync() {
    const { watches } = this.#board;
    if (watches.size === 0) return this.#stop();
    const wanted = [...watches].flatMap((watch) => [...watch.ids]).concat(this.#tabs?.wanted ?? []);
    const added = this.#board.keep(new Set(wanted));
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
    for (const [id, story] of this.#board.stories) {
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
    const feed = new Feed(this.#http, this.#listener);
    feed.rest(this.#isUnseen);
    this.#feeds.push(feed);
    void this.#run(feed);
    return feed;
  }

  /** @param {Feed} feed */
  async #run(feed) {
    const { signal } = /** @type {AbortController} */ (this.#serving);
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
    const isNews = this.#board.note(message);
    if (isNews) this.#tabs?.tell(message.kind === "connection" ? { ...message, age: this.#board.age } : message);
    this.#settle(); // last: it may be the end of this tab's part
  }

  /** @param {Message} message - from another tab */
  #hear(message) {
    this.#board.heard();
    this.#board.note(message);
    this.#settle();
  }

  /** @returns {import("./tabs.js").Owner} */
  #asOwner() {
    return {
      known: () => this.#board.known,
      answer: (known) => this.#board.beyond(known),
      take: (message) => this.#hear(message),
      serve: (isServing) => this.#serve(isServing),
      sync: () => this.#sync(),
    };
  }

  // Ending

  #settle() {
    const { watches, stories } = this.#board;
    for (const watch of watches) if (watch.settle(stories)) this.remove(watch);
    if (!this.#isConfirming && this.#board.unconfirmed.length) void this.#confirm();
  }

  /**
   * Ask whether what seems final is: a failure may be followed by a retry. Where the stream ends it says so before;
   * this is for one that goes on for other tasks.
   */
  async #confirm() {
    const { signal } = /** @type {AbortController} */ (this.#life);
    this.#isConfirming = true;
    try {
      await pause(this.#http.timing.confirm, signal);
      const lookup = new Lookup(this.#http, this.#listener);
      for (const id of this.#board.unconfirmed) lookup.ids.add(id);
      for (const id of [...lookup.ids]) await lookup.complete(id, signal);
      for (const id of lookup.ids) this.#board.end(id);
    } catch (error) {
      if (!signal.aborted && isForGood(error)) this.#fail(error);
    }
    this.#isConfirming = false;
    if (!signal.aborted) this.#settle();
  }
}
