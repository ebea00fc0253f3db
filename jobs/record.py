"""What a worker tells of itself with each beat, as one field of its rq hash, for operators and the watchdog."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

from pydantic import TypeAdapter, ValidationError

MOST_TYPES = 100
"""Task types that a record names, so that a worker of very many does not fill Redis."""

LONGEST_REASON = 300
"""Characters of the reason why a type was set aside, or the end of a task cannot be written."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The memory of one GPU, in bytes; zeros where NVML does not tell."""

    used: int
    total: int
    device: str = ""  # number or UUID, as in CUDA_VISIBLE_DEVICES


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker as of its last beat. Times are ms since 1970 by Redis' clock, spans ms, sizes bytes."""

    version: str = ""  # of Ghostless
    beat_at: int | None = None  # None until the worker knows what Redis' clock says
    lease: int = 0  # the length of the worker's leases: a record older than that tells of the past
    types: tuple[str, ...] = ()
    set_aside: Mapping[str, str] = field(default_factory=dict[str, str])  # types not taken for a while, and why
    task_id: str | None = None
    attempt: int | None = None
    since: int | None = None  # when the attempt began
    stopping: str = ""  # why the attempt was asked to stop
    kill_at: int | None = None  # when its process is killed then
    unwritten: Mapping[str, str] = field(default_factory=dict[str, str])  # tasks whose end cannot be written, and why
    lease_age: int | None = None  # since the lease was last renewed
    horse_pid: int | None = None
    horse_rss: int | None = None
    gpus: tuple[GpuMemory, ...] = ()
    loading_since: int | None = None  # while there is no horse that is ready
    drain_ends_at: int | None = None  # while the worker stops: when its task is asked to do so too
    health: str | None = None  # where the worker answers for its health, "IP:port"

    def to_json(self) -> str:
        """Return the text that is kept in Redis; its length is bounded."""
        bounded = {name: _cut(getattr(self, name)) for name in ("set_aside", "unwritten")}
        return _JSON.dump_json(replace(self, types=self.types[:MOST_TYPES], **bounded)).decode()

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, text: str | None) -> "WorkerRecord | None":
        """Read what a worker of any version wrote; None when there is nothing, or nothing that can be understood."""
        try:
            return _JSON.validate_json(text) if text else None
        except ValidationError:
            return None


def _cut(reasons: Mapping[str, str]) -> dict[str, str]:
    return {name: why[:LONGEST_REASON] for name, why in islice(reasons.items(), MOST_TYPES)}


_JSON = TypeAdapter(WorkerRecord)
