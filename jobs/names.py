"""What ids and names may be, since they become parts of keys, paths and options."""

import re
from typing import Final

ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a task's id may be; rq's rule too."""

NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
"""What a queue, a task type or a worker may be called. Clients take `.` and `..` in a path for folders."""

OWNER_LIMIT: Final = 64
"""Most bytes of an owner's name, which is any printable text."""

KEY_LIMIT: Final = 255
"""Most bytes of an idempotency key, which is any printable text."""

MESSAGE_LIMIT: Final = 2048
"""Most bytes of a message in the history, whoever writes it; a longer one is cut."""

FILE_NAME: Final = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*")
"""What an artifact may be called: nothing that leads elsewhere, and no leading dot."""

FILE_NAME_LIMIT: Final = 200
"""Most bytes of an artifact's name."""

_WHOLE: Final = re.compile(r"[0-9]{1,15}")
_ENTRY_ID: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")


def as_entry_id(text: str) -> tuple[int, int] | None:
    """Return the ms and the sequence number of a history entry's id; None for what is none. Both have 64 bits."""
    match = _ENTRY_ID.fullmatch(text)
    numbers = (int(match[1]), int(match[2])) if match else None
    return numbers if numbers and max(numbers) < 2**64 else None


def is_whole(text: str) -> bool:
    """Tell whether a text is a whole number as our scripts write them: Lua is exact up to there."""
    return bool(_WHOLE.fullmatch(text))
