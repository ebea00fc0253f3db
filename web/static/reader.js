// @ts-check
// One thing that is read again and again, until it was read after it was last asked for.

import { isForGood, restAfter } from "./client/errors.js";
import { fullJitter, pause, TIMING } from "./client/timing.js";

const FIRST = 1_000; // ms, the ceiling of the delay after a first failure
const MOST = 15_000;

export class Reader {
  #read;
  #tell;
  #isWanted = false;
  #isReading = false;

  /**
   * @param {() => Promise<void>} read
   * @param {(error: unknown) => void} tell - is told of each failure, and of null once it succeeds
   */
  constructor(read, tell) {
    this.#read = read;
    this.#tell = tell;
  }

  /** Read from now on; however often it is asked for meanwhile, once more afterwards is enough. */
  ask() {
    this.#isWanted = true;
    if (!this.#isReading) void this.#run();
  }

  async #run() {
    this.#isReading = true;
    for (let failures = 0; this.#isWanted; ) {
      this.#isWanted = false;
      const error = await this.#read().then(() => null, (reason) => reason);
      this.#tell(error);
      const isPassing = error !== null && !isForGood(error);
      const rest = Math.min(TIMING.patience, restAfter(error) + fullJitter(failures, FIRST, MOST));
      if (isPassing) await pause(rest, undefined, true);
      failures = isPassing ? failures + 1 : 0;
      this.#isWanted ||= isPassing;
    }
    this.#isReading = false;
  }
}
