"""Ids and names in a path, checked before anything looks them up."""

import re

from .kinds import Kind
from .models import ID_PATTERN, NAME_PATTERN
from .problems import Refusal


def task_id(given: str) -> str:
    """Return the id. Raises Refusal (404) when no task can have it."""
    return _checked(Kind.INVALID_ID, "id", given, ID_PATTERN)


def bulk_id(given: str) -> str:
    """Return the id. Raises Refusal (404) when no bulk action can have it."""
    return _checked(Kind.INVALID_ID, "id", given, ID_PATTERN)


def queue_name(given: str) -> str:
    """Return the name. Raises Refusal (404) when no queue can have it."""
    return _checked(Kind.INVALID_QUEUE, "queue", given, NAME_PATTERN)


def type_name(given: str) -> str:
    """Return the name. Raises Refusal (404) when no task type can have it."""
    return _checked(Kind.INVALID_TYPE, "type", given, NAME_PATTERN)


def _checked(kind: Kind, name: str, given: str, pattern: str) -> str:
    if re.fullmatch(pattern, given):
        return given
    detail = f"{name}: expected text matching {pattern}"
    raise Refusal(kind, detail, [{"parameter": name, "detail": detail}])
