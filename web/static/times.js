// @ts-check
// Times as people read them, counted by the server's clock: the one of this machine may be hours off.

let ahead = 0; // ms by which the server's clock is ahead of this machine's

/** Learn the server's clock from an answer that just came. @param {Response} answer */
export function learnClock(answer) {
  const told = Date.parse(answer.headers.get("Date") ?? "");
  if (!Number.isNaN(told)) ahead = told - Date.now();
}

/** The time now, in ms since 1970. */
export const now = () => Date.now() + ahead;

/** A time with its zone, the same text for everybody who reads over a shoulder. @param {number} ms */
export function clock(ms) {
  return new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
}

/** The hour, minute and second of a time. @param {number} ms */
export const hour = (ms) => new Date(ms).toLocaleTimeString(undefined, { hourCycle: "h23" });

const UNITS = /** @type {const} */ ([["day", 86400], ["hour", 3600], ["minute", 60]]);

/** How long ago, in the largest unit that says something. @param {number} ms */
export function ago(ms) {
  const seconds = Math.max(0, Math.round((now() - ms) / 1000));
  const [unit, size] = UNITS.find(([, size]) => seconds >= size) ?? ["second", 1];
  return new Intl.RelativeTimeFormat("en", { numeric: "always" }).format(-Math.floor(seconds / size), unit);
}
