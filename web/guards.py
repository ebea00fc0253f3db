"""What every request must pass and every answer carries, whatever the route."""

from flask import Flask, Response, request

from .hosts import is_local
from .kinds import Kind
from .problems import Refusal

BODY_LIMIT = 2 * 1024 * 1024
"""Most bytes of a request body: params and metadata of 1 MiB each."""

READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Of every answer."""


def install(app: Flask, *, local_only: bool) -> None:
    """Put the guards before and after all routes; `local_only` says whether the server serves this machine only."""
    app.config["MAX_CONTENT_LENGTH"] = BODY_LIMIT
    app.url_map.merge_slashes = False  # a redirect would repeat what a client sent in a page
    if local_only:
        app.before_request(refuse_other_hosts)
    app.before_request(refuse_strangers)
    app.before_request(refuse_other_bodies)
    app.after_request(add_headers)


def refuse_other_hosts() -> None:
    """Answer only to names of this machine: a site whose own name leads here would pass as a page of this origin."""
    host = request.headers.get("Host")  # only other programs than browsers leave it out
    if host is not None and not is_local(host):
        detail = f"Host: expected a name of this machine, like localhost or 127.0.0.1, got {host[:200]!r}"
        raise Refusal(Kind.WRONG_HOST, detail)


def refuse_strangers() -> None:
    """Let a browser change something only for pages of this origin; other programs send none of these headers.

    No browser sends a token in a header by itself, and no page of another site can make it: it would ask first
    (CORS), and nobody here says yes. So who does send one is no such page, whatever he says of himself.
    """
    if request.method in READING or request.headers.get("Authorization", "").lower().startswith("bearer "):
        return
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    # Browsers leave Sec-Fetch-Site out on plain HTTP beyond localhost; there the Origin must do.
    here = f"{request.scheme}://{request.host}"
    own = site == "same-origin" if site is not None else origin in (None, here)
    if not own:
        raise Refusal(Kind.CROSS_SITE, "A page of another site cannot change anything here.")


def refuse_other_bodies() -> None:
    """Take nothing but JSON: a form on another site can send everything else without asking."""
    has_body = bool(request.content_length) or "Transfer-Encoding" in request.headers
    if request.method not in READING and has_body and request.mimetype != "application/json":
        raise Refusal(Kind.NOT_JSON, "Content-Type: expected application/json")


def add_headers(response: Response) -> Response:
    """Give every answer its security headers; a route that set one keeps its own."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
