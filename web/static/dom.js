// @ts-check
// The few things that pages do with their elements: everything shown is text, never HTML.

/** @param {string} id @returns {HTMLElement} */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Put a text into an element; the same text is left alone, since somebody may have selected it. @param {string} id @param {string} text */
export function write(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

/** Put a text into an element, which is hidden while there is none. @param {string} id @param {string} text */
export function show(id, text) {
  write(id, text);
  byId(id).hidden = !text;
}

/** Put children into an element, unless it has the same already. @param {string} id @param {(string | Node)[]} children */
export function fill(id, children) {
  const made = element("div", {}, ...children);
  if (made.innerHTML !== byId(id).innerHTML) byId(id).replaceChildren(...made.childNodes);
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

/** A text whose parts between backticks are code. @param {string} text @returns {(string | Node)[]} */
export function rich(text) {
  const parts = text.split("`");
  const areClosed = parts.length % 2 === 1;
  return areClosed ? parts.map((part, place) => (place % 2 ? element("code", {}, part) : part)) : [text];
}

/** Any value as text. @param {unknown} value */
export const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");
