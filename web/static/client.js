// @ts-check
/** The client of Ghostless for browsers. */

export class Client {}
