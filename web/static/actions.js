// @ts-check
// The buttons of what can be done. They are never disabled, which would throw away the focus, but only say so.

import { show } from "./dom.js";

export class Actions {
  /** @type {Set<string | undefined>} */
  #possible = new Set();
  #isAsking = false;
  #act;
  #buttons = /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("#actions button"));

  /** @param {(action: string) => Promise<void>} act */
  constructor(act) {
    this.#act = act;
    for (const button of this.#buttons) button.addEventListener("click", () => this.#press(button.dataset.action ?? ""));
  }

  /** Say what can be done now. @param {string[]} actions */
  allow(actions) {
    this.#possible = new Set(actions);
    this.#show();
  }

  /** @param {string} action */
  async #press(action) {
    if (this.#isAsking || !this.#possible.has(action)) return;
    this.#mark(true);
    await this.#act(action);
    this.#mark(false);
  }

  /** @param {boolean} isAsking */
  #mark(isAsking) {
    this.#isAsking = isAsking;
    show("asking", isAsking ? "asking…" : "");
    this.#show();
  }

  #show() {
    for (const button of this.#buttons) {
      button.ariaDisabled = String(this.#isAsking || !this.#possible.has(button.dataset.action));
    }
  }
}
