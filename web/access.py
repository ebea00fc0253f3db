"""Who asks, and what he may do and see."""

from dataclasses import dataclass
from enum import StrEnum

from flask import g

from ..jobs.errors import TaskNotFound
from ..jobs.model import Task
from .problems import Refusal


class Scope(StrEnum):
    """What a caller may do; each is given by itself."""

    SUBMIT = "submit"
    READ = "read"
    OPERATE = "operate"
    WORK = "work"
    ADMIN = "admin"


ANONYMOUS = "api"
"""The actor in the history where nobody has to say who he is."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One who asks: `actor` names him in the history; bound to an owner he sees that owner's tasks only."""

    actor: str
    scopes: frozenset[Scope]
    owner: str | None = None
    expires_at: float | None = None  # seconds since 1970 by this server's clock; None: never

    @classmethod
    def anonymous(cls) -> "Caller":
        """Return the caller of whom nothing is known, where nobody has to say who he is."""
        return cls(ANONYMOUS, frozenset(Scope))

    @property
    def is_anonymous(self) -> bool:
        """Whether nothing tells this caller from others."""
        return self.actor == ANONYMOUS

    def demand(self, scope: Scope) -> None:
        """Raise Refusal (403) when the caller has not this scope."""
        if scope not in self.scopes:
            raise Refusal(403, "missing-scope", "Not allowed", f"this needs the scope {scope}")

    def may_see(self, owner: str | None) -> bool:
        """Tell whether tasks of this owner are the caller's business."""
        return self.owner is None or self.owner == owner

    def check(self, task: Task) -> None:
        """Raise TaskNotFound for a task of another owner, as if there were none."""
        if not self.may_see(task.owner or None):
            raise TaskNotFound(task.id)


def caller() -> Caller:
    """Return who makes the request that is served."""
    if "caller" not in g:
        g.caller = Caller.anonymous()
    return g.caller
