"""The last word about an attempt: its end is told to Redis until it answers, and to the log of the worker."""

import logging
import random
import time
import traceback
from collections.abc import Callable

from ..statemachine import Event, Reason
from .errors import CorruptRecord, GhostlessError
from .messages import Answer, Claim, Claimed, ClaimReply, Ending
from .names import MESSAGE_LIMIT
from .pauses import Pauses
from .reporter import Reporter
from .store import Store
from .values import cut

log = logging.getLogger("rq.worker.ghostless")


def settle(
    store: Store,
    reporter: Reporter,
    claimed: Claimed,
    ending: Ending,
    actor: str,
    *,
    next_claim: Claim | None,
    give_up: Callable[[], bool],
) -> tuple[Answer | None, ClaimReply | None]:
    """Tell Redis how an attempt ended, again and again until it answers, and claim the next task with it.

    The work is done, so an outage only delays its result. Returns (None, None) when the attempt was given
    away, cannot be settled, or `give_up` said so; the watchdog then finds the task by its lease. However late it is,
    Redis is told at least once: it may be the handler alone that took so long.
    """
    # After an outage a lease is left to each worker, in which its result must arrive.
    pauses = Pauses(0.05, min(2.0, store.settings.lease / 4))
    fraction = random.random()
    was_sent = is_last = False
    while not is_last:
        is_last = give_up()
        if not was_sent and not reporter.flush(patience=1.0) and not is_last:
            continue
        if not was_sent and reporter.is_lost:
            break
        # From here on no beat may ask about the attempt: it could be over, and its answer be on its way.
        reporter.release()
        was_sent = True
        try:
            return store.finish(claimed.held, ending, actor, next_claim, fraction=fraction)
        except CorruptRecord as error:
            log.error("task %s cannot be settled: %s", claimed.held.task_id, error)
            break
        except GhostlessError as error:
            log.warning("%s; the result of %s is kept", error, claimed.held.task_id)
        time.sleep(pauses.next())
    return None, None


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
