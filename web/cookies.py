"""A browser's session: a signed cookie that stands for a token, and lives on while it is used."""

import logging
from typing import Any

from flask import Flask, Request, Response, g, request

from ..jobs.errors import GhostlessError
from ..jobs.tokens import Token
from . import credentials
from .credentials import Credential
from .desk import desk
from .hosts import is_local
from .keyring import Keyring
from .problems import Refusal

SESSION_COOKIE = "ghostless_session"

SESSION_LIFE = 3600.0
"""Seconds that a session lives on after its last use; in the first half of them it is not renewed."""

SESSION_MOST = 12 * 3600.0
"""Seconds after which a session is over however it is used, so that a stolen cookie is not good for ever."""

log = logging.getLogger(__name__)


def install(app: Flask) -> None:
    """Let sessions that are used live on."""
    app.after_request(_renew_session)


def session_of(asked: Request, keyring: Keyring) -> Credential | None:
    """Return what a request's cookie is good for. Raises RedisUnavailable.

    A browser sends an old one by itself: it says as little as none.
    """
    text = asked.cookies.get(_name(asked))
    try:
        g.session = credentials.of_session(keyring, text) if text else None
    except Refusal:
        return None
    return g.session


def start_session(response: Response, token: Token) -> None:
    """Give the browser a cookie that stands for a token. Raises RedisUnavailable, RedisFull."""
    _set_cookie(response, credentials.new_session(desk().keyring, token, SESSION_MOST))


def end_session(response: Response) -> None:
    """End the session of the request, if it has one, and take its cookie away. Raises RedisUnavailable, RedisFull."""
    ended = session_of(request, desk().keyring)
    if ended and ended.token and ended.ends is not None:
        desk().keyring.end_session(ended.token.id, ended.session, ended.ends)
    g.pop("session", None)  # which is not to be renewed
    response.delete_cookie(_name(request), **_cookie_terms())


def _set_cookie(response: Response, session: Credential) -> None:
    text = credentials.session_cookie(desk().keyring, session, SESSION_LIFE)
    response.set_cookie(_name(request), text, max_age=int(SESSION_LIFE), **_cookie_terms())


def _renew_session(response: Response) -> Response:
    """Let a session that is used live on."""
    used: Credential | None = g.get("session")
    if used is None or used.expires is None or used.expires == used.ends:
        return response
    try:
        if used.expires - desk().keyring.look().now < SESSION_LIFE * 500:
            _set_cookie(response, used)
    except GhostlessError as error:  # the next answer may do it
        log.info("a session was not renewed: %s", error)
    return response


def _name(asked: Request) -> str:
    # With the prefix a browser takes it only as it is set here: from no other host, and not by plain HTTP.
    return SESSION_COOKIE if is_local(asked.host) else f"__Host-{SESSION_COOKIE}"


def _cookie_terms() -> dict[str, Any]:
    # Never in plain text over a network; browsers differ in whether they count this machine as safe.
    return {"path": "/", "httponly": True, "samesite": "Strict", "secure": not is_local(request.host)}
