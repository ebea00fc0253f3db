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

// Every time on a page is the reader's own, with the name of its zone.

/** A time with its date. @param {number} ms */
export function clock(ms) {
  return new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
}

/** A time of today. @param {number} ms */
export const hour = (ms) => new Date(ms).toLocaleTimeString(undefined, { timeStyle: "long" });

const UTC = /\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d\+00:00)/g;

/** What the server says, whose times are UTC. @param {string} text */
export const localized = (text) => text.replace(UTC, (_, date, time) => clock(Date.parse(`${date}T${time}`)));

const UNITS = /** @type {const} */ ([["day", 86400], ["hour", 3600], ["minute", 60]]);

/** How long ago, in the largest unit that says something. @param {number} ms */
export function ago(ms) {
  const seconds = Math.max(0, Math.round((now() - ms) / 1000));
  const [unit, size] = UNITS.find(([, size]) => seconds >= size) ?? ["second", 1];
  return new Intl.RelativeTimeFormat("en", { numeric: "always" }).format(-Math.floor(seconds / size), unit);
}
