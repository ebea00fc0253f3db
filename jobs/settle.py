"""The last word about an attempt: its end is told to Redis until it answers, and to the log of the worker."""

import logging
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

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

Note = Callable[[str, str], None]
"""Is called with a task whose end cannot be written, and why."""


def settle(
    store: Store,
    reporter: Reporter,
    ended: Sequence[Ended],
    actor: str,
    *,
    next_claim: Claim | None,
    give_up: Callable[[], bool],
    note: Note = lambda task_id, why: None,
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
    return tell(store, ended, actor, next_claim=next_claim, give_up=give_up, note=note)


def tell(
    store: Store,
    ended: Sequence[Ended],
    actor: str,
    *,
    next_claim: Claim | None = None,
    give_up: Callable[[], bool],
    note: Note = lambda task_id, why: None,
) -> ClaimReply | None:
    """Tell Redis how attempts ended, until it answers, and the log; return what was claimed with it.

    The work is done, so an outage only delays its result, and so does damage beside the task, which is told to `note`.
    Returns None when the attempts cannot be settled or `give_up` said so; the watchdog then finds the tasks by their
    leases. However late it is, Redis is told at least once: it may be the handler alone that took so long.
    """
    # After an outage a lease is left to each worker, in which its result must arrive.
    pauses = Pauses(0.05, min(2.0, store.settings.lease / 4))
    untold = [(claimed, Finished(claimed.held, ending)) for claimed, ending in ended]
    reply, is_last = None, False
    while untold and not is_last:
        is_last = give_up()
        try:
            answers, reply = store.finish_each([finished for _, finished in untold], actor, next_claim)
            told = zip(untold, answers, strict=True)
            untold = [one for one, answer in told if not _is_settled(store, *one, answer, note)]
        except GhostlessError as error:
            log.warning("%s; the result of %s is kept", error, untold[-1][1].held.task_id)
        if untold and not is_last:
            time.sleep(pauses.next())
    for claimed, finished in untold:
        log_ending(claimed, finished.ending, None)
    return reply


def _is_settled(
    store: Store, claimed: Claimed, finished: Finished, answer: Answer | GhostlessError, note: Note
) -> bool:
    """Tell whether nothing more is to be said of an attempt; else its lease is renewed, and it is to be told again."""
    task_id = claimed.held.task_id
    if isinstance(answer, Answer):
        log_ending(claimed, finished.ending, answer)
        return True
    log.error("the end of task %s cannot be written: %s; `ghostless doctor --repair` may mend it", task_id, answer)
    if _is_of(store.keys.task(task_id), answer):  # nobody can tell what the task is: that is for a person
        log_ending(claimed, finished.ending, None)
        return True
    note(task_id, str(answer))
    _renew(store, claimed)
    return False


def _is_of(name: str, error: GhostlessError) -> bool:
    """Tell whether an error is about this key, and not about one whose name only begins like it, or holds it."""
    return isinstance(error, CorruptRecord) and error.detail.startswith((f"{name}:", f"{name} "))


def _renew(store: Store, claimed: Claimed) -> None:
    """Let no watchdog take an attempt away that is over and cannot be told; it is not judged by its timeout either."""
    longest_run = round(1000 * (time.monotonic() - claimed.asked_at + store.settings.lease))
    with suppress(GhostlessError):  # what became of it, the next answer tells
        store.heartbeat(claimed.held, longest_run if longest_run > claimed.task.policy.timeout else None)


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
