// @ts-check
/** How long to wait for what, and how to wait without holding anything up. */

/** All in milliseconds. @typedef {Record<keyof typeof TIMING, number>} Timing */

export const TIMING = Object.freeze({
  /** A request that is answered at once. */
  request: 30_000,
  /** How long the server is asked to hold an answer. */
  held: 30_000,
  /** How long a request is repeated before its error is passed on; the most that a server is waited for. */
  patience: 60_000,
  /** A new stream that says nothing for so long is held back by a proxy. */
  firstByte: 10_000,
  /** An open stream says something every 15 s; when two signs of life are missing, it is dead. */
  silence: 35_000,
  /** When the page is looked at again, a stream that was silent for so long is not trusted. */
  doubtful: 20_000,
  /** Between two streams, unless the server says otherwise. */
  reconnect: 3_000,
  /** The ceilings of the delay after a failure: the first, and the most. */
  backoffFirst: 1_000,
  backoffMost: 30_000,
  /** Between two short polls: at first, and when nothing changes. */
  pollFirst: 1_000,
  pollMost: 10_000,
  /** Between two short polls of a page that nobody looks at, where tabs cannot share a stream. */
  rest: 30_000,
  /** Where streams are not to be had, they are tried again after this. */
  streamAgain: 60_000,
  /** Between two signs of life among tabs; after three without an answer the leader counts as frozen. */
  beat: 2_000,
  /** How long after the end of its tasks a watch asks whether that is the end. */
  confirm: 2_000,
});

/**
 * Return a delay: anything up to a ceiling that doubles with each failure, so that many clients do not come at once.
 * @param {number} failures - how many there were before this one
 * @param {number} first
 * @param {number} most
 */
export function fullJitter(failures, first, most) {
  return Math.random() * Math.min(most, first * 2 ** Math.min(failures, 20));
}

/**
 * Wait. Rejects with the signal's reason when that is aborted, and leaves no timer behind.
 * @param {number} milliseconds
 * @param {AbortSignal} [signal]
 * @param {boolean} [wakeable] - whether to end early when the network is back, or the page is looked at again
 * @returns {Promise<void>}
 */
export function pause(milliseconds, signal, wakeable = false) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      sleepOn();
      signal?.removeEventListener("abort", abort);
    };
    const wake = () => (stop(), resolve());
    const abort = () => (stop(), reject(signal?.reason));
    const timer = setTimeout(wake, milliseconds);
    const sleepOn = wakeable ? onWake(wake) : () => {};
    signal?.addEventListener("abort", abort);
  });
}

/**
 * Wait for a promise that may never settle. Rejects when it takes too long, and with the signal's reason.
 * @template T
 * @param {Promise<T>} promise
 * @param {number} milliseconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
export async function within(promise, milliseconds, signal) {
  const settled = new AbortController();
  const either = signal ? AbortSignal.any([signal, settled.signal]) : settled.signal;
  const tooLong = pause(milliseconds, either).then(() => {
    throw new Error(`nothing came within ${milliseconds / 1000} s`);
  });
  try {
    return await Promise.race([promise, tooLong]);
  } finally {
    settled.abort();
  }
}

/**
 * Call back when the network is back (with true), or when the page is looked at again (with false).
 * @param {(isNetwork: boolean) => void} wake
 * @returns {() => void} what ends that
 */
export function onWake(wake) {
  const page = globalThis.document;
  const online = () => wake(true);
  const seen = () => page.visibilityState === "visible" && wake(false);
  globalThis.addEventListener("online", online);
  page?.addEventListener("visibilitychange", seen);
  return () => {
    globalThis.removeEventListener("online", online);
    page?.removeEventListener("visibilitychange", seen);
  };
}
