// @ts-check
// The page of the API's description: all of it is there already, but for who is signed in.

import { readSession, showSession } from "./session.js";

showSession(await readSession());
