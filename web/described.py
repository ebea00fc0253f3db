"""What the description of the API says beside the models: parameters in paths, headers, errors by status, security."""

from collections.abc import Mapping
from typing import Any

from ..jobs.names import FILE_NAME_LIMIT, KEY_LIMIT
from .access import Scope
from .cookies import SESSION_COOKIE
from .models import ID_PATTERN, NAME_PATTERN

Schema = Mapping[str, Any]

TITLE = "Ghostless"
INTRODUCTION = """\
Submit tasks, follow them, and act on them. Bodies and answers are JSON; every error is a problem detail (RFC 9457)
whose `type` names its kind. Times are ms since 1970 by Redis' clock, unless a field says otherwise.

Beyond its own machine a server demands a token of everybody, as `Authorization: Bearer`, and each operation a scope of
it; on its own machine nobody needs one, unless it was started with `--require-tokens`. With `--allow-anonymous` it
demands none anywhere. `docs/security.md` tells more.

`docs/api.md` tells the conventions: versions, long polls, idempotency, cursors, limits, and each kind of error.
"""

TAG_TITLES: Mapping[str, str] = {
    "tasks": "Tasks",
    "bulk": "Bulk actions",
    "events": "Event streams",
    "artifacts": "Artifacts",
    "deliveries": "Callbacks",
    "work": "Work over HTTP",
    "publishing": "Publishing of task types",
    "sessions": "Sessions and stream tokens",
    "overview": "Queues, types and workers",
    "health": "Health",
    "metrics": "Metrics",
    "description": "This description",
    "static": "Files for browsers",
    "pages": "Pages for people",
}
"""A heading for each group of routes."""

PATH_PARAMETERS: Mapping[str, tuple[str, Schema, str]] = {
    "given_id": ("id", {"type": "string", "pattern": ID_PATTERN}, "The task's id."),
    "given_name": ("name", {"type": "string", "pattern": NAME_PATTERN}, "The queue's name."),
    "given_bulk": ("bulk", {"type": "string", "pattern": ID_PATTERN}, "The bulk action's id."),
    "delivery_id": ("delivery", {"type": "string"}, "The delivery's id."),
    "given_type": ("type", {"type": "string", "pattern": NAME_PATTERN}, "The task type's name."),
    "file": ("file", {"type": "string"}, "A file of the pages or of the JavaScript client, such as `client.js`."),
    "file_name": ("file_name", {"type": "string", "maxLength": FILE_NAME_LIMIT}, "The file's name."),
    "action": ("action", {"type": "string"}, "What is to be done."),
}
"""By the name of a route's variable: its public name, its schema, and what it is."""

_TEXT: Schema = {"type": "string"}
_KEY: Schema = {
    "type": "string",
    "pattern": rf'^([!#-~]{{1,{KEY_LIMIT}}}|"([ !#-\[\]-~]|\\["\\])+")$',
    "maxLength": 2 + 2 * KEY_LIMIT,  # quoted, each character escaped
}
_SECONDS: Schema = {"type": "integer", "minimum": 0}

REQUEST_HEADERS: Mapping[str, tuple[Schema, str]] = {
    "Idempotency-Key": (
        _KEY,
        f"A value of the client's own, plain or quoted, {KEY_LIMIT} characters at most: the same request with the same "
        "key is one task, however often it is sent. Remembered for a day by default.",
    ),
    "If-None-Match": (_TEXT, "The ETag of what the client has: 304 while that is still so."),
    "Prefer": (_TEXT, "`wait=N` holds the answer for N seconds, until there is something new."),
    "Range": (_TEXT, "`bytes=FROM-TO`: a part of the file; the first byte is 0."),
    "Last-Event-ID": (_TEXT, "The id of the last event that the client saw: the stream goes on behind it."),
}

ANSWER_HEADERS: Mapping[str, tuple[Schema, str]] = {
    "ETag": (_TEXT, "The version of what is shown, for If-None-Match."),
    "Location": ({"type": "string", "format": "uri-reference"}, "Where the task is found."),
    "Retry-After": (_SECONDS, "Seconds after which it makes sense to ask again."),
    "Preference-Applied": (_TEXT, "`wait=N`: for how many seconds the answer was held at most."),
    "Content-Range": (_TEXT, "Which bytes these are, and of how many."),
    "Link": (_TEXT, 'The address of the next page, with `rel="next"`.'),
}

PROBLEMS: Mapping[int, str] = {
    400: "The body is not readable as JSON, or a header is malformed.",
    401: "No token, or one that is not known.",
    403: "The caller lacks the scope, or a page of another site asked.",
    404: "There is nothing of this name, or it is none of the caller's business.",
    408: "The body did not come in time.",
    409: "Not possible as things stand; `state` says how they do.",
    410: "The task's retention ended, and it was purged.",
    413: "The body, or a value in it, is too large.",
    415: "The body is not `application/json`.",
    416: "The file has no such part.",
    421: "The server is not served under this name.",
    422: "The request is not acceptable; `errors` names each fault.",
    429: "Too many at a time.",
    500: "A record is damaged, or the server failed; its log says why.",
    503: "Redis does not answer, is full or takes no writes: nothing was half done, and asking again is safe.",
}

OF_EVERY_ROUTE = (401, 403, 421, 422, 500, 503)
OF_PATHS = (404, 410)
"""Of routes with a name in their path."""
OF_BODIES = (400, 408, 413, 415)

SCOPES: Mapping[Scope, str] = {
    Scope.SUBMIT: "submit tasks",
    Scope.READ: "look at tasks, queues, workers and streams",
    Scope.OPERATE: "cancel, pause, resume and retry",
    Scope.WORK: "run tasks as a worker does",
    Scope.ADMIN: "do everything",
}

SECURITY: Mapping[str, Schema] = {
    "bearer": {
        "type": "http", "scheme": "bearer",
        "description": "A token, made with `ghostless tokens add`. Each scope allows one thing: "
        + "; ".join(f"`{scope}` to {meaning}" for scope, meaning in SCOPES.items()) + ".",
    },
    "session": {
        "type": "apiKey", "in": "cookie", "name": SESSION_COOKIE,
        "description": "For pages: set when a person signs in, and good for what his token is.",
    },
}  # fmt: skip
