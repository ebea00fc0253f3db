"""What browsers load from us as it is: the JavaScript client, and what pages need."""

import os
from pathlib import Path

from flask import Blueprint, Response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound
from werkzeug.security import safe_join

from .operations import Reply, operation

FOLDER = Path(__file__).parent / "static"

TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
"""The kinds of files there may be; what Python knows of them depends on the machine."""

routes = Blueprint("static", __name__)


@routes.get("/static/<path:file>")
@operation(None, headers=("If-None-Match",), answers={200: Reply("text/javascript", ("ETag",), "The file."), 304: None})
def static_file(file: str) -> ResponseReturnValue:
    """Return a file of the pages or of the JavaScript client; 304 when the browser has it as it is."""
    kind, path = TYPES.get(file.rpartition(".")[2]), safe_join(str(FOLDER), file)
    if kind is None or path is None or not os.path.isfile(path):
        raise NotFound
    answer = Response(Path(path).read_bytes(), mimetype=kind)
    # Asked for again each time, and told by its content: after a deploy no page runs with old and new modules mixed.
    answer.headers["Cache-Control"] = "no-cache"
    answer.add_etag()
    return answer.make_conditional(request)
