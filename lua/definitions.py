"""Cuts Lua text into its definitions, and finds those that some other text needs."""

import re
from collections.abc import Sequence
from functools import cache

_COMMENT = re.compile(r"[ \t]*--.*")
_EMPTY_LINES = re.compile(r"\n{2,}")
_BEGINNING = re.compile(r"^(?=local |\w+ = )", re.MULTILINE)
_DEFINED = re.compile(r"(?:local )?(?:function )?(\w+(?:, \w+)*)")
_WORD = re.compile(r"\w+")


def without_comments(text: str) -> str:
    """Return the text without comments and empty lines. No string in our Lua holds two dashes."""
    return _EMPTY_LINES.sub("\n", _COMMENT.sub("", text)).strip("\n")


def definitions(text: str) -> tuple[str, ...]:
    """Return the definitions of a part, which is nothing but these: each begins at the margin."""
    return tuple(piece.rstrip("\n") for piece in _BEGINNING.split(text) if piece.strip())


def needed(pieces: Sequence[str], code: str) -> list[str]:
    """Return those of the definitions that the code names, or that one of these names, in their order.

    Any word counts, also the name of a field: what is kept without need costs a little, and nothing else.
    """
    kept: set[str] = set()
    words = set(_words(code))
    while found := [piece for piece in pieces if piece not in kept and not words.isdisjoint(_defined(piece))]:
        kept.update(found)
        words.update(*map(_words, found))
    return [piece for piece in pieces if piece in kept]


@cache
def _words(piece: str) -> frozenset[str]:
    return frozenset(_WORD.findall(piece))


@cache
def _defined(piece: str) -> tuple[str, ...]:
    names = _DEFINED.match(piece)
    return tuple(names.group(1).split(", ")) if names else ()
