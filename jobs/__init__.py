"""What users of the product import.

What talks to Redis, and what reads a handler's signature, is loaded when it is first asked for: both take long.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .context import Artifact, Context
from .errors import (
    CorruptRecord,
    Fault,
    GhostlessError,
    GroupNotFound,
    IllegalMove,
    InvalidHandler,
    InvalidParams,
    InvalidSetting,
    InvalidTask,
    QueueNotFound,
    RedisFull,
    RedisRefused,
    RedisUnavailable,
    RetryLater,
    StaleAttempt,
    TaskConflict,
    TaskNotFound,
    TaskStopped,
    TooLarge,
    UnknownTaskType,
)
from .model import Entry
from .settings import Settings
from .subscriptions import on
from .values import InvalidValue

if TYPE_CHECKING:
    from .client import Client
    from .listing import Filter
    from .registry import task
    from .submission import Request

__all__ = [
    "Artifact",
    "Client",
    "Context",
    "CorruptRecord",
    "Entry",
    "Fault",
    "Filter",
    "GhostlessError",
    "GroupNotFound",
    "IllegalMove",
    "InvalidHandler",
    "InvalidParams",
    "InvalidSetting",
    "InvalidTask",
    "InvalidValue",
    "QueueNotFound",
    "RedisFull",
    "RedisRefused",
    "RedisUnavailable",
    "Request",
    "RetryLater",
    "Settings",
    "StaleAttempt",
    "TaskConflict",
    "TaskNotFound",
    "TaskStopped",
    "TooLarge",
    "UnknownTaskType",
    "on",
    "task",
]

_LOADED_LATER = {"Client": ".client", "Filter": ".listing", "Request": ".submission", "task": ".registry"}


def __getattr__(name: str) -> Any:
    if name in _LOADED_LATER:
        return getattr(import_module(_LOADED_LATER[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
