"""The last word about an attempt: its end is told to Redis until it answers, and to the log of the worker."""

import logging
import time
import traceback
from collections.abc import Callable, Sequence

from ..statemachine import Event, Reason
from .errors import CorruptRecord, GhostlessError
from .messages import Answer, Claim, Claimed, ClaimReply, Ending, Finished
from .names import MESSAGE_LIMIT
from .pauses import Pauses
from .reporter import Reporter
from .store import Store
from .values import cut

log = logging.getLogger("rq.worker.ghostless")


Ended = tuple[Claimed, Ending]
"""An attempt, and how it ended."""


def settle(
    store: Store,
    reporter: Reporter,
    ended: Sequence[Ended],
    actor: str,
    *,
    next_claim: Claim | None,
    give_up: Callable[[], bool],
) -> ClaimReply | None:
    """Tell Redis how attempts ended, again and again until it answers, and claim what comes next with it.

    The reporter holds the last one. Returns what was claimed; None when none was, or when nothing could be told.
    """
    while not reporter.flush(patience=1.0) and not give_up():
        pass
    if reporter.is_lost:  # the attempt was given away
        ended = [(claimed, ending) for claimed, ending in ended if claimed.held.task_id != reporter.task_id]
    # From here on no beat may ask about the attempt: it could be over, and its answer be on its way.
    reporter.release()
    return tell(store, ended, actor, next_claim=next_claim, give_up=give_up) if ended else None


def tell(
    store: Store, ended: Sequence[Ended], actor: str, *, next_claim: Claim | None = None, give_up: Callable[[], bool]
) -> ClaimReply | None:
    """Tell Redis how attempts ended, until it answers, and the log; return what was claimed with it.

    The work is done, so an outage only delays its result. Returns None when the attempts cannot be settled or `give_up`
    said so; the watchdog then finds the tasks by their leases. However late it is, Redis is told at least once: it may
    be the handler alone that took so long.
    """
    # After an outage a lease is left to each worker, in which its result must arrive.
    pauses = Pauses(0.05, min(2.0, store.settings.lease / 4))
    finished = [Finished(claimed.held, ending) for claimed, ending in ended]
    answers, reply, is_last = [None] * len(ended), None, False
    while not is_last:
        is_last = give_up()
        try:
            answers, reply = store.finish_each(finished, actor, next_claim)
            break
        except CorruptRecord as error:
            log.error("task %s cannot be settled: %s", finished[-1].held.task_id, error)
            break
        except GhostlessError as error:
            log.warning("%s; the result of %s is kept", error, finished[-1].held.task_id)
        time.sleep(pauses.next())
    for (claimed, ending), answer in zip(ended, answers, strict=True):
        log_ending(claimed, ending, answer)
    return reply


def given_back(claimed: Sequence[Claimed]) -> list[Ended]:
    """Return the end of attempts that were not begun: the tasks come back to the head of their queue in this order."""
    ending = Ending(Event.SUSPEND, Reason.SHUTDOWN, "given back, not begun")
    return [(one, ending) for one in reversed(claimed)]


def not_run(worker: str, error: Exception) -> Ending:
    """Return the end of an attempt that its worker could not run; call it where the error is handled."""
    told = f"worker {worker} could not run it: {type(error).__name__}: {error}"
    return Ending(Event.FAIL, Reason.CRASHED, cut(told, MESSAGE_LIMIT), traceback.format_exc())


def log_ending(claimed: Claimed, ending: Ending, answer: Answer | None) -> None:
    """Write the one line that each attempt has in the log."""
    level = logging.WARNING if ending.event in (Event.FAIL, Event.TIMEOUT) else logging.INFO
    which = claimed.task.type, claimed.held.attempt, claimed.held.task_id
    state = f"{answer.word} {answer.state}" if answer else "not told to Redis"
    detail = f": {ending.message}" if ending.message else ""
    log.log(level, "%s: attempt %d of %s: %s, %s%s", *which, ending.event, state, detail)
