"""References inside of a JSON Schema: `#/$defs/NAME`, read as jsonschema reads them."""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote


def referred_path(reference: str) -> list[str] | None:
    """Return the names that lead from the root to what is referred to; None for what is no JSON pointer (RFC 6901)."""
    start, hash_sign, fragment = reference.partition("#")
    pointer = unquote(fragment)
    if start or not hash_sign or not (pointer == "" or pointer.startswith("/")):
        return None
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def referred(reference: object, root: Mapping[str, Any]) -> object:
    """Return the schema that is referred to; None where there is none, or it is not inside the root."""
    path = referred_path(reference) if isinstance(reference, str) else None
    if path is None:
        return None
    place: object = root
    for name in path:
        place = cast("Mapping[str, object]", place).get(name) if isinstance(place, Mapping) else None
    return place
