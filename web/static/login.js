// @ts-check
// The page that takes a token, and keeps it in a cookie that no script can read.

import { byId, show } from "./dom.js";
import { base, isSignedIn, readSession } from "./session.js";

const token = /** @type {HTMLInputElement} */ (byId("token"));
const button = /** @type {HTMLButtonElement} */ (byId("sign-in"));

/** Where to go afterwards: an address of this server, and whole, since a path alone may begin like another host's. */
function destination() {
  const next = new URLSearchParams(location.search).get("next") || `${base}/docs`;
  const target = URL.canParse(next, location.origin) ? new URL(next, location.origin) : null;
  return target?.origin === location.origin ? target.href : `${base}/docs`;
}

/** Sign in; return what is wrong, "" for nothing. @param {string} text */
async function signIn(text) {
  const answer = await fetch(`${base}/api/session`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token: text }),
    signal: AbortSignal.timeout(30_000),
  });
  if (answer.ok) return isSignedIn(await readSession()) ? "" : notKept();
  const problem = await answer.json().catch(() => ({}));
  return problem.detail || problem.title || `The server answered ${answer.status}.`;
}

/** Why the token was right, and the browser is signed in nevertheless not. */
function notKept() {
  if (location.protocol === "https:") return "The browser keeps no cookie of this server, so it cannot be signed in.";
  return "This address has no TLS, so the browser keeps no session: use https, or localhost.";
}

byId("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (button.ariaDisabled === "true") return;
  button.ariaDisabled = "true";
  const wrong = await signIn(token.value.trim()).catch(() => "The server cannot be reached. Try again.");
  button.ariaDisabled = "false";
  show("fault", wrong);
  if (!wrong) location.assign(destination());
});
button.disabled = false; // until now the browser would have sent the form itself
