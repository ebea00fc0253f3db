"""The task types that workers published, and the check of a submit against them without any user code."""

import difflib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema_specifications import REGISTRY

from ..statemachine import Policy
from .errors import CorruptRecord, Fault, InvalidParams, UnknownTaskType
from .masking import has_secrets, masked
from .names import NAME
from .reads import Reads

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
        """Return everything wrong with these params. Raises CorruptRecord when the schema is none."""
        try:
            # The registry knows the dialects alone: left out, it would fetch what a schema refers to from anywhere.
            validator = Draft202012Validator(self.schema, registry=REGISTRY)
            found: list[ValidationError] = list(validator.iter_errors(cast(Any, params)))
        except Exception as error:  # jsonschema has no root for what it raises at a damaged schema
            raise CorruptRecord(f"schema of the task type {self.name}: {error}") from error
        return [Fault(_field(error), self._told(error)) for error in found]

    def masked(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return params as anybody may see them: with a mask in the place of every secret."""
        return cast("Mapping[str, Any]", masked(params, self.schema, self.schema))

    def _told(self, error: ValidationError) -> str:
        # Other messages than these quote the value, and a misplaced secret would be in it.
        if error.validator in ("required", "additionalProperties") or not has_secrets(self.schema):
            return error.message[:500]
        return f"does not fit the schema ({error.validator}); values of this type are not shown, as it has secrets"


def _field(error: ValidationError) -> str:
    return ".".join(["params", *map(str, error.absolute_path)])


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
        """Return the type when the params fit it. Raises UnknownTaskType or InvalidParams naming every fault."""
        if time.monotonic() - self._read_at < FRESH:
            known = self._types.get(name)
            if known and not known.faults(params):
                return known
        published = self.all().get(name)
        if published is None:
            raise UnknownTaskType(name, difflib.get_close_matches(name, self._types, n=3))
        faults = published.faults(params)
        if faults:
            raise InvalidParams(name, faults)
        return published
