"""What may leave a handler: strict JSON within its limit, and texts cut to theirs. And what a text must be."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from .errors import GhostlessError, TooLarge

VALUE_LIMIT: Final = 1024 * 1024
"""Most bytes of a checkpoint or a result, as JSON in UTF-8."""

LEVELS: Final = 200
"""Deepest nesting of a value; a deeper one could be written here and break the reader elsewhere."""

_GAP: Final = "\n[...]\n"


class InvalidValue(GhostlessError, ValueError):
    """A handler passed or returned a value that cannot be used."""

    def __init__(self, name: str, expected: str, got: str) -> None:
        self.name, self.expected, self.got = name, expected, got
        super().__init__(f"{name}: expected {expected}, got {got}")


def to_json(what: str, value: object) -> str:
    """Return compact JSON. Raises InvalidValue with the path of what has no JSON form, or TooLarge."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except Exception as error:  # a subclass of dict or str may raise anything
        raise _without_json_form(what, value, error) from error
    if size > VALUE_LIMIT:
        raise TooLarge(what, size, VALUE_LIMIT)
    # Only a text with enough brackets can be too deep; all others are spared the walk.
    if text.count("[") + text.count("{") > LEVELS and _is_too_deep(value):
        raise InvalidValue(what, "JSON", f"more than {LEVELS} levels")
    return text


def not_json(word: str) -> Any:
    """Refuse what Python's parser takes for a number, NaN say, and JSON does not know. Raises ValueError."""
    raise ValueError(f"{word} is not JSON")


def _is_too_deep(value: Any) -> bool:
    parts = [value]
    for _ in range(LEVELS):
        parts = [item for part in parts for item in _items(part)]
    return any(isinstance(part, dict | list | tuple) for part in parts)


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast(dict[Any, Any], value).values()
    return cast(Iterable[Any], value) if isinstance(value, list | tuple) else ()


def _without_json_form(what: str, value: object, error: Exception) -> InvalidValue:
    try:
        path, got = next(_faults(what, value, 0), (what, str(error)))
    except Exception as broken:  # from the value's own methods
        path, got = what, f"{type_name(value)} that raises {type(broken).__name__}"
    return InvalidValue(path, "JSON", got)


def _faults(path: str, value: object, level: int) -> Iterator[tuple[str, str]]:
    """Yield where something stands that JSON has no form for, and what it is."""
    if level > LEVELS:
        yield path[:LEVELS] + "...", f"more than {LEVELS} levels, or a value inside itself"
    elif isinstance(value, dict):
        for key, item in cast(dict[Any, Any], value).items():
            yield from _scalar_faults(f"a key of {path}", key)
            yield from _faults(f"{path}.{str(key)[:64]}", item, level + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast(list[Any], value)):
            yield from _faults(f"{path}[{index}]", item, level + 1)
    else:
        yield from _scalar_faults(path, value)


def _scalar_faults(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path, repr(value)
    elif isinstance(value, str):
        if not _is_unicode(value):
            yield path, "text with half of a surrogate pair"
    elif value is not None and not isinstance(value, bool | int):
        yield path, type_name(value)


def type_name(value: object) -> str:
    """Name the type of a value as its author knows it, like `set` or `numpy.ndarray`."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def shown(value: object) -> str:
    """Return the beginning of a value's repr, for an error message."""
    try:
        return cut(repr(value), 80)
    except Exception:  # from the value's own method, or a number with too many digits
        return type_name(value)


def is_text(value: object, limit: int) -> bool:
    """Tell whether a value is a text of 1 to `limit` bytes of UTF-8."""
    return isinstance(value, str) and _is_unicode(value) and 1 <= len(value.encode()) <= limit


def text_fault(value: object, limit: int) -> str:
    """Return what is wrong with a text that must be printable and have 1 to `limit` bytes of UTF-8; "" for nothing."""
    if is_text(value, limit) and cast(str, value).isprintable():
        return ""
    return f"expected 1 to {limit} bytes of printable text, got {shown(value)}"


def mismatch(value: object, pattern: re.Pattern[str]) -> str:
    """Return what is wrong with a text that must match a pattern; "" for nothing."""
    if isinstance(value, str) and pattern.fullmatch(value):
        return ""
    return f"expected text matching {pattern.pattern}, got {shown(value)}"


def digest(text: str) -> str:
    """Return a short text, 32 hex digits, that stands for a longer one and no other."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def cut(text: str, limit: int) -> str:
    """Return the beginning of a text, at most `limit` bytes of UTF-8, cut between two characters."""
    return text[:limit].encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def cut_middle(text: str, limit: int) -> str:
    """Return a text of at most `limit` bytes of UTF-8: a longer one keeps its head and its tail."""
    whole = text[: limit + 1].encode("utf-8", "replace")
    if len(whole) <= limit:
        return whole.decode()
    half = (limit - len(_GAP)) // 2
    tail = text[-half:].encode("utf-8", "replace")[-half:].decode("utf-8", "ignore")
    return cut(text, half) + _GAP + tail
