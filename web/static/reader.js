// @ts-check
// One thing that is read again and again, until it was read after it was last asked for.

import { isForGood, ProblemError } from "./client/errors.js";
import { fullJitter, pause } from "./client/timing.js";

const FIRST = 1_000; // ms, the ceiling of the delay after a first failure
const MOST = 15_000;

/** Whether Ghostless itself said this, and not a proxy before it. @param {unknown} error @returns {error is ProblemError} */
export const isOurs = (error) => error instanceof ProblemError && error.type.startsWith("urn:ghostless:");

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
      const isPassing = error !== null && !(isOurs(error) && isForGood(error));
      if (isPassing) await pause(fullJitter(failures, FIRST, MOST), undefined, true);
      failures = isPassing ? failures + 1 : 0;
      this.#isWanted ||= isPassing;
    }
    this.#isReading = false;
  }
}
