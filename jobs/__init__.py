"""What users of the product import."""

from .context import Artifact, Context
from .errors import (
    CorruptRecord,
    Fault,
    GhostlessError,
    IllegalMove,
    InvalidHandler,
    InvalidParams,
    InvalidSetting,
    InvalidTask,
    RedisFull,
    RedisUnavailable,
    RetryLater,
    StaleAttempt,
    TaskConflict,
    TaskNotFound,
    TaskStopped,
    TooLarge,
    UnknownTaskType,
)
from .registry import task
from .values import InvalidValue

__all__ = [
    "Artifact",
    "Context",
    "CorruptRecord",
    "Fault",
    "GhostlessError",
    "IllegalMove",
    "InvalidHandler",
    "InvalidParams",
    "InvalidSetting",
    "InvalidTask",
    "InvalidValue",
    "RedisFull",
    "RedisUnavailable",
    "RetryLater",
    "StaleAttempt",
    "TaskConflict",
    "TaskNotFound",
    "TaskStopped",
    "TooLarge",
    "UnknownTaskType",
    "task",
]
