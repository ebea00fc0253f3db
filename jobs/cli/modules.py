"""Saying why the modules with handlers cannot be loaded, in one line."""

import re

from ..stable import HorseBroken

_PLACE = re.compile(r'File "(.+)", line (\d+)')


def told_broken(error: HorseBroken) -> str:
    """Return what is wrong and where, out of the traceback that the horse sent."""
    first, *rest = error.detail.strip().splitlines()
    if not rest:
        return str(error).replace("\n", " ")
    *_, (file, line) = _PLACE.findall(error.detail) or [("", "")]
    place = f" ({file}, line {line})" if file and "importlib" not in file else ""
    return f"{first} could not be loaded: {rest[-1].strip()}{place}"
