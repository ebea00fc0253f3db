"""An exception told in a frame: whatever a handler raises, its message and traceback become bounded text."""

import re
import traceback
from collections.abc import Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Any, Final

from .bounds import WAIT, fault
from .errors import RetryLater
from .names import MESSAGE_LIMIT
from .values import cut, cut_middle

_LOST_GPU = re.compile(r"(cuda|hip)[ _]?error(?!.{0,40}out.?of.?memory)", re.IGNORECASE)
"""What torch ("CUDA error: ..."), JAX ("CUDA_ERROR_...") and CuPy ("cudaError...") say of a fault after which each
further call of the process to its GPU fails as well. Being out of memory is none, also when it is called an error."""

ERROR_LIMIT: Final = 64 * 1024
MOST_CAUSES: Final = 10
"""Exceptions of a chain that are looked at."""


def describe(reason: str, message: str) -> Mapping[str, Any]:
    """Return the frame of a failure that another attempt would meet again, and that no traceback explains."""
    text = cut(message, MESSAGE_LIMIT)
    return {"kind": "raised", "reason": reason, "message": text, "error": text, "retryable": False, "asked": 0}


def describe_error(error: BaseException, reason: str, prefix: str, *, retryable: bool) -> Mapping[str, Any]:
    """Return the frame of an exception from user code."""
    wish: object = getattr(error, "seconds", None) if isinstance(error, RetryLater) else 0
    wrong = fault(wish, WAIT)
    if wrong:
        prefix += f"RetryLater seconds: {wrong}: "
    return {
        "kind": "raised",
        "reason": reason,
        "message": cut(prefix + message_of(error), MESSAGE_LIMIT),
        "error": traceback_of(error),
        "retryable": retryable,
        "asked": round(1000 * WAIT.nearest(wish)),
        "retire": _lost_gpu(error),
    }


def message_of(error: BaseException) -> str:
    """Return an exception as one line, also when it cannot say what it is."""
    name = type(error).__name__
    try:
        text = " ".join(str(error)[:MESSAGE_LIMIT].split())
    except BaseException as failure:
        text = f"(its message cannot be read: {type(failure).__name__})"
    if isinstance(error, MemoryError):
        text = f"out of memory: {text}".removesuffix(": ")
    return cut(f"{name}: {text}" if text else name, MESSAGE_LIMIT)


def _lost_gpu(error: BaseException) -> str:
    """Return why the process is of no use any more when its GPU was lost; "" when it was not."""
    told = (message_of(link) for link in islice(_chain(error), MOST_CAUSES))
    return next((f"it may have lost its GPU: {cut(text, 200)}" for text in told if _LOST_GPU.search(text)), "")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def traceback_of(error: BaseException) -> str:
    """Return the traceback as text, at most 64 KB with head and tail kept, beginning in the user's code."""
    try:
        text = "".join(traceback.format_exception(type(error), error, _users_part(error.__traceback__)))
    except BaseException as failure:
        text = f"{message_of(error)}\n(its traceback cannot be shown: {type(failure).__name__})"
    return cut_middle(text, ERROR_LIMIT)


def _users_part(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_globals.get("__package__") == __package__:
        frames = frames.tb_next
    return frames
