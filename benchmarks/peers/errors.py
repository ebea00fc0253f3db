"""Why a peer is left out."""


class LeftOut(Exception):
    """A peer cannot be measured here; the message says why."""
