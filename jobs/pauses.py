"""Growing pauses between tries while something does not answer, apart from those of others who try as well."""

from redis.backoff import EqualJitterBackoff


class Pauses:
    """Each pause is twice the one before, between `first` and `longest` seconds, and shortened at random by half."""

    def __init__(self, first: float, longest: float) -> None:
        self._backoff = EqualJitterBackoff(cap=longest, base=first)
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait after one more failure."""
        self._failures += 1
        return self._backoff.compute(self._failures - 1)

    def reset(self) -> None:
        """Begin anew, after a success."""
        self._failures = 0
