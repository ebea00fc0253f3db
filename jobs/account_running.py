"""What a worker does with a task that it holds, and who steps in when it does not."""

from ..statemachine import Event, Policy, State
from .account import Account, by, last, unwatched
from .availability import handed_back_at, stop_of, unwritten_by
from .circumstances import Circumstances
from .spans import distance, duration, percent


def processing(around: Circumstances) -> Account:
    """Explain what runs."""
    task = around.task
    if around.lease is None:
        return _silent(around)
    if around.granted and around.lease < around.granted // 2:
        return _quiet(around, around.lease, around.granted)
    unwritten = unwritten_by(around.holder, task)
    if unwritten:
        return _unwritten(around, unwritten)
    asked = stop_of(around.holder, task)
    if asked:
        why = f"the worker {task.worker_id} has asked attempt {task.attempt} to stop: {asked.stopping}"
        upcoming = "it ends as soon as its handler stops, or its worker kills its process"
        return Account(why, upcoming, asked.kill_at, _signs_of_life(around))
    why, hands_back_at = _runs(around), handed_back_at(around.holder)
    if hands_back_at:
        upcoming = "it ends by itself, or goes back to its queue, from its last checkpoint"
        return Account(f"{why}, and is draining", upcoming, hands_back_at, _signs_of_life(around))
    upcoming = f"it ends by itself, or its worker stops it{_limits(task.policy)}"
    return Account(why, upcoming, task.timeout_at, _signs_of_life(around))


def _runs(around: Circumstances) -> str:
    """Say that it runs; of one that was started together with others only its worker knows whether it does."""
    task, record = around.task, around.holder and around.holder.record
    if around.is_batched and not (record and record.task_id == task.id):
        started = f"the worker {task.worker_id} started attempt {task.attempt} together with other short tasks"
        return f"{started}, and runs one after the other: this one may not have begun"
    return f"the worker {task.worker_id} runs attempt {task.attempt}"


def _unwritten(around: Circumstances, why: str) -> Account:
    task = around.task
    return Account(
        f"the worker {task.worker_id} holds the end of attempt {task.attempt}, and cannot write it: {why}",
        "it tries again until it can. The watchdog puts right what it can; for the rest: `ghostless doctor --repair`",
        evidence=_signs_of_life(around),
    )


def _limits(policy: Policy) -> str:
    stalled = f" after {duration(policy.stall_timeout)} without progress, or" if policy.stall_timeout else ""
    extended = (
        f" or later, at most {duration(policy.max_runtime)} from its start, while it reports progress"
        if policy.extend_by
        else ""
    )
    return f"{stalled} at its timeout{extended}"


def stopping(around: Circumstances) -> Account:
    """Explain what was asked to stop."""
    if around.lease is None:
        return _silent(around)
    unwritten = unwritten_by(around.holder, around.task)
    if unwritten:
        return _unwritten(around, unwritten)
    is_cancelled = around.task.state is State.CANCELLING
    asked = last(around, Event.CANCEL if is_cancelled else Event.PAUSE)
    how = "when its next beat tells it so" if _is_far(around) else "now" if is_cancelled else "at its next checkpoint"
    who, at = _who_ends_it(around, graces=1 if is_cancelled else 2)  # one to reach the checkpoint, one to stop
    return Account(
        f"it was asked to stop{by(asked)}, and its worker {around.task.worker_id} has not confirmed it yet",
        f"its worker stops it {how}; should its handler not stop, {who}",
        at,
        _signs_of_life(around),
    )


def _is_far(around: Circumstances) -> bool:
    """Tell whether its worker works over HTTP: it hears of a stop with its beats, and is not known to kill anything."""
    return around.holder is not None and around.holder.over_http


def _who_ends_it(around: Circumstances, graces: int) -> tuple[str, int | None]:
    since = around.task.entered_at
    kill_at = None if around.grace is None else since + graces * around.grace
    if not _is_far(around) and (kill_at is None or around.now <= kill_at):
        return "the worker kills its process after the grace, and the watchdog ends it if that fails", kill_at
    end_at = None if around.patience is None else since + around.patience
    return f"the watchdog takes it away from the worker{unwatched(around)}", end_at


def _quiet(around: Circumstances, left: int, granted: int) -> Account:
    """Explain what a worker holds that has missed a beat; beats are at most a third of a lease apart."""
    task, since = around.task, duration(granted - left)
    return Account(
        f"its worker {task.worker_id} has not renewed the lease of attempt {task.attempt} for {since}",
        f"the watchdog takes it away from that worker if the lease runs out{unwatched(around)}",
        around.now + left,
        _signs_of_life(around),
    )


def _silent(around: Circumstances) -> Account:
    worker, now = around.task.worker_id, around.now
    why = f"its worker {worker} has gone silent: the lease of attempt {around.task.attempt} is over"
    if not around.swept_at:
        return Account(why, "nothing until a watchdog runs: `ghostless watchdog`")
    evidence = (f"the last sweep was {distance(around.swept_at, now)}", *_last_word(around))
    look_at = max(around.look_at or now, around.judge_from or now)
    return Account(why, _VERDICTS[around.is_doubted], look_at, evidence)


_VERDICTS = {
    False: "the watchdog takes it away from that worker; a beat later if most of what runs has fallen silent too",
    True: "most of what runs fell silent together, so the watchdog looks twice; then it takes it away from that worker",
}


def _signs_of_life(around: Circumstances) -> tuple[str, ...]:
    task, now = around.task, around.now
    signs = [f"its lease holds for {duration(around.lease or 0)} more"]
    if task.progress_at is None:
        signs.append("it reported no progress so far")
    else:
        told = f" ({task.message})" if task.message else ""
        signs.append(f"last progress {distance(task.progress_at, now)}: {percent(task.progress or 0)}{told}")
    return (*signs, *_last_word(around))


def _last_word(around: Circumstances) -> tuple[str, ...]:
    holder = around.holder
    if holder is None or holder.heartbeat_at is None:
        return ()
    address = holder.record.health if holder.record else None
    health = f"; it answers for its health at {address}" if address else ""
    size = holder.record.horse_rss if holder.record else None
    memory = f"; the process of its handlers held {size // 2**20} MiB then" if size else ""
    if holder.silent_for is not None:
        return (f"{holder.name} has not beaten for {duration(holder.silent_for)}{memory}{health}",)
    return (f"{holder.name} beat {distance(holder.heartbeat_at, around.now)}{memory}{health}",)
