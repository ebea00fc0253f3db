// @ts-check
// Who is signed in.

import { byId, show } from "./dom.js";
import { learnClock } from "./times.js";

const PATIENCE = 5_000; // ms, after which a page goes on without knowing

/** @typedef {{actor: string, scopes: string[], owner: string | null, expires_at: number | null}} Session */

export const base = document.body.dataset.base ?? "";

/** Who asks, as the server says; null where nobody can tell. @returns {Promise<Session | null>} */
export async function readSession() {
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    const answer = await fetch(`${base}/api/session`, { signal, cache: "no-store" });
    learnClock(answer);
    const told = answer.ok ? await answer.json() : null;
    return Array.isArray(told?.scopes) ? told : null;
  } catch {
    return null;
  }
}

/** Whether it is one that this browser keeps: where nobody must sign in, there is an answer without an end. @param {Session | null} session */
export const isSignedIn = (session) => Boolean(session?.expires_at);

/** Name who is signed in, with a way out. @param {Session | null} session */
export function showSession(session) {
  byId("session").hidden = !isSignedIn(session);
  show("actor", session?.actor.replace(/^api:/, "") ?? "");
  byId("sign-out").addEventListener("click", signOut);
}

/** Where to sign in, and to come back from. */
export const loginAddress = () => `${base}/login?next=${encodeURIComponent(location.pathname)}`;

async function signOut() {
  const answer = await fetch(`${base}/api/session`, { method: "DELETE" }).catch(() => null);
  if (answer?.ok) location.assign(loginAddress());
  else byId("sign-out").textContent = "Not signed out: try again";
}
