"""Pages for people: shells without data, which ask the API for what they show, as any other client does."""

from flask import Blueprint, Response, current_app, make_response, render_template
from flask.typing import ResponseReturnValue

from .models import NextQuery
from .names import task_id
from .openapi import described_once
from .operations import Reply, operation
from .problems import Refusal

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

_PAGE = {200: Reply("text/html", (), "A page.")}

routes = Blueprint("pages", __name__, template_folder="templates")


@routes.get("/tasks/<given_id>")
@operation(None, answers=_PAGE)
def task(given_id: str) -> ResponseReturnValue:
    """Show one task: where it is, how it got there, and what can be done."""
    try:
        return page("task.html", task_id=task_id(given_id))
    except Refusal as refusal:
        shown = repr(given_id[:100])[1:-1]  # with what cannot be printed escaped
        return page("missing.html", what=shown), refusal.kind.status


@routes.get("/login")
@operation(None, query=NextQuery, answers=_PAGE)
def login(query: NextQuery) -> ResponseReturnValue:
    """Ask for a token, where the server demands one, and lead on to where the person came from."""
    return page("login.html")


@routes.get("/docs")
@operation(None, answers=_PAGE)
def docs() -> ResponseReturnValue:
    """Show the description of the API to a person."""
    return page("docs.html", document=described_once(current_app))


@routes.get("/")
@operation(None, answers=_PAGE)
def front() -> ResponseReturnValue:
    """Show who comes to the server itself what it offers: the description of the API."""
    return docs()


def page(template: str, **values: object) -> Response:
    """Return a page under the strict policy."""
    answer = make_response(render_template(template, **values))
    answer.headers["Content-Security-Policy"] = PAGE_POLICY
    return answer
