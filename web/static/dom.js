// The few things that pages do with their elements: everything shown is text, never HTML.

/** @param {string} id @returns {HTMLElement} */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Put a text into an element, which is hidden while there is none. @param {string} id @param {string} text */
export function show(id, text) {
  byId(id).textContent = text;
  byId(id).hidden = !text;
}

/**
 * Make an element with text and elements in it.
 * @param {string} name @param {Record<string, string>} attributes @param {...(string | Node)} children
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A time with its zone, the same text for everybody who reads over a shoulder. @param {number} ms */
export function clock(ms) {
  return new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
}

/** How long ago, in the largest unit that says something. @param {number} ms */
export function ago(ms) {
  const seconds = Math.max(0, Math.round((Date.now() - ms) / 1000));
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const [unit, size] = units.find(([, size]) => seconds >= size) ?? ["second", 1];
  return new Intl.RelativeTimeFormat("en", { numeric: "always" }).format(-Math.floor(seconds / size), unit);
}

/** Any value as text. @param {unknown} value */
export const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");
