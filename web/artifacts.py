"""Routes of artifacts: what handlers kept with `ctx.artifact`, where this server can read that folder."""

from itertools import islice
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, jsonify, send_from_directory
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound, RequestedRangeNotSatisfiable

from ..jobs.model import Task
from ..jobs.names import FILE_NAME, FILE_NAME_LIMIT
from ..jobs.values import is_text
from .access import Scope
from .confinement import task_seen
from .desk import Desk, desk
from .kinds import Kind
from .operations import UNCHANGED, Reply, operation
from .problems import Refusal
from .views import ArtifactList

PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""What a browser may show, by suffix. Everything else it must save: a page or an SVG picture could run scripts here."""

SHOWN = 100
"""Artifacts that one answer lists at most."""

CLOCKS = 10.0
"""Seconds by which the clock that dates a file may be behind that of Redis."""

routes = Blueprint("artifacts", __name__, url_prefix="/api/tasks/<given_id>/artifacts")


@routes.get("")
@operation(Scope.READ, answers={200: ArtifactList})
def artifacts(given_id: str) -> ResponseReturnValue:
    """Return what a task's attempts kept, by name, with sizes in bytes.

    Empty where the server does not share the folder of the workers (`GHOSTLESS_ARTIFACTS`).
    """
    task = _task(given_id)
    folder = _folder(task)
    try:
        paths = sorted(folder.iterdir()) if _is_own(folder) else []
    except (FileNotFoundError, NotADirectoryError):
        paths = []
    views = islice(filter(None, (_view(path, task) for path in paths)), SHOWN)
    return jsonify(task=given_id, artifacts=list(views))


@routes.get("/<file_name>")
@operation(
    Scope.READ, headers=("If-None-Match", "Range"), problems=(416,),
    answers={
        200: Reply("*/*", ("ETag",), "The file: pictures as `image/…`, everything else as `application/octet-stream`."),
        206: Reply("*/*", ("ETag", "Content-Range"), "The part that `Range` asks for."),
        304: UNCHANGED,
    },
)  # fmt: skip
def artifact(given_id: str, file_name: str) -> ResponseReturnValue:
    """Return the bytes of one artifact: pictures to be shown, everything else to be saved."""
    task = _task(given_id)
    folder = _folder(task)
    try:
        if _is_own(folder) and _is_name(file_name) and _is_shown(folder / file_name, task):
            return _guarded(_sent(folder / file_name))
    except (FileNotFoundError, NotFound):
        pass  # it was removed meanwhile
    raise Refusal(Kind.ARTIFACT_NOT_FOUND, f"{file_name[:100]!r} is not among what the task kept")


def _sent(path: Path) -> Response:
    try:
        kept = not _is_picture(path)
        return send_from_directory(path.parent, path.name, mimetype=_kind(path), as_attachment=kept)
    except RequestedRangeNotSatisfiable as error:
        raise Refusal(Kind.RANGE_NOT_SATISFIABLE, f"Range: the file has {error.length} bytes") from error


def _task(given_id: str) -> Task:
    checked = task_seen(given_id)
    [task] = desk().client.reads.tasks([checked])  # without what is bulky
    return task if isinstance(task, Task) else desk().client.get(checked)  # which says what is wrong


def _folder(task: Task) -> Path:
    here: Desk = desk()
    return Path(here.client.settings.artifacts).absolute() / task.id


def _is_name(name: str) -> bool:
    return FILE_NAME.fullmatch(name) is not None and is_text(name, FILE_NAME_LIMIT)


def _is_own(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink()  # a link could lead to another task's, or anywhere


def _is_shown(path: Path, task: Task) -> bool:
    # A name with a leading dot is a part that is still being written; a link could lead anywhere.
    is_file = not path.name.startswith(".") and path.is_file() and not path.is_symlink()
    return is_file and _is_of(path, task)


def _is_of(path: Path, task: Task) -> bool:
    """Tell whether a file was kept since the task was submitted: before that its id may have been somebody else's."""
    return path.stat().st_mtime >= task.submitted_at / 1000 - CLOCKS


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURES


def _kind(path: Path) -> str:
    return PICTURES.get(path.suffix.lower(), "application/octet-stream")


def _view(path: Path, task: Task) -> dict[str, Any] | None:
    """Return what a listing says of a file; None for what is not shown, or was removed meanwhile."""
    try:
        size, is_shown = path.lstat().st_size, _is_shown(path, task)
    except FileNotFoundError:
        return None
    return {"name": path.name, "size": size, "is_picture": _is_picture(path)} if is_shown else None


def _guarded(answer: Response) -> Response:
    answer.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return answer
