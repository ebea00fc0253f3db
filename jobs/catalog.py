"""The task types that workers published, and the check of a submit against them without any user code."""

import difflib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from jsonschema.exceptions import ValidationError

from ..statemachine import Policy
from .errors import FAULTS_LIMIT, Fault, InvalidParams, UnknownTaskType
from .masking import has_secrets, masked
from .names import NAME
from .reads import Reads
from .schema_check import STEPS_LIMIT, TooCostly, first_errors

log = logging.getLogger("ghostless")

FRESH = 30.0
"""Seconds after which what was published is read again."""


@dataclass(frozen=True, slots=True)
class PublishedType:
    """One task type as its workers published it."""

    name: str
    queue: str
    policy: Policy
    schema: Mapping[str, Any]
    description: str

    @classmethod
    def read(cls, name: str, published: Mapping[str, Any]) -> "PublishedType":
        """Read the published form. Raises ValueError or AttributeError for one that cannot be used."""
        policy, queue, schema = Policy.unpack(published["policy"]), published["queue"], published["schema"]
        if not isinstance(queue, str) or not NAME.fullmatch(queue):
            raise ValueError(f"no name of a queue: {queue!r}")
        if not isinstance(schema, dict):
            raise ValueError(f"no schema: {schema!r}")
        return cls(name, queue, policy, cast("Mapping[str, Any]", schema), str(published["description"]))

    def faults(self, params: object) -> list[Fault]:
        """Return what is wrong with these params, no more than one more than an error names."""
        try:
            found = first_errors(self.schema, params, FAULTS_LIMIT + 1)
        except TooCostly:
            return [Fault("params", f"too much to check, over {STEPS_LIMIT} steps; send less in one task")]
        # jsonschema has no root for what it raises, and a damaged schema keeps no server busy.
        except Exception as error:
            return [Fault("params", f"cannot be checked by the schema of {self.name}: {self._reason(error)}")]
        secret = has_secrets(self.schema)
        return [Fault(_field(error), _told(error, secret)) for error in found]

    def masked(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return params as anybody may see them: with a mask in the place of every secret."""
        return cast("Mapping[str, Any]", masked(params, self.schema))

    def _reason(self, error: Exception) -> str:
        # Some errors quote the value.
        reason = type(error).__name__ if has_secrets(self.schema) else f"{type(error).__name__}: {error}"[:500]
        log.error("params of the task type %s cannot be checked by its schema: %s", self.name, reason)
        return reason


def _told(error: ValidationError, secret: bool) -> str:
    # Other messages than these quote the value, and a misplaced secret would be in it.
    if error.validator in ("required", "additionalProperties") or not secret:
        return error.message[:500]
    return f"does not fit the schema ({error.validator}); values of this type are not shown, as it has secrets"


def _field(error: ValidationError) -> str:
    return ".".join(["params", *map(str, error.absolute_path)])[:500]


def _readable(types: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, PublishedType]]:
    for name, kind in types.items():
        try:
            yield name, PublishedType.read(name, kind)
        except (ValueError, AttributeError) as error:  # one damaged type must not keep the others from being served
            log.error("what is published of the task type %r cannot be read: %s", name, error)


class Catalog:
    """What is published, remembered for a while; an old memory never refuses a submit."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._types: dict[str, PublishedType] = {}
        self._read_at = -FRESH

    def all(self) -> dict[str, PublishedType]:
        """Return every published type, read now."""
        self._types = dict(_readable(self._reads.types()))
        self._read_at = time.monotonic()
        return self._types

    def check(self, name: str, params: object) -> PublishedType:
        """Return the type when the params fit it. Raises UnknownTaskType or InvalidParams naming the faults."""
        known = self._types.get(name) if time.monotonic() - self._read_at < FRESH else None
        faults = known.faults(params) if known else []
        if known and not faults:
            return known
        published = self.all().get(name)
        if published is None:
            raise UnknownTaskType(name, difflib.get_close_matches(name, self._types, n=3))
        if published != known:
            faults = published.faults(params)
        if faults:
            raise InvalidParams(name, faults)
        return published
