"""Pages for people: shells without data, which ask the API for what they show, as any other client does."""

import re

from flask import Blueprint, Response, make_response, render_template
from flask.typing import ResponseReturnValue

from .models import ID_PATTERN

PAGE_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ]
)
"""What a page may load and run: nothing but the files of this server, and no text that became code."""

routes = Blueprint("pages", __name__, template_folder="templates")


@routes.get("/tasks/<given_id>")
def task(given_id: str) -> ResponseReturnValue:
    """Show one task: where it is, how it got there, and what can be done."""
    if not re.fullmatch(ID_PATTERN, given_id):
        return page("missing.html", what=given_id[:100]), 404
    return page("task.html", task_id=given_id)


@routes.get("/login")
def login() -> ResponseReturnValue:
    """Ask for a token, where the server demands one."""
    return page("login.html")


def page(template: str, **values: object) -> Response:
    """Return a page under the strict policy."""
    answer = make_response(render_template(template, **values))
    answer.headers["Content-Security-Policy"] = PAGE_POLICY
    return answer
