"""Bulk actions, page by page: what they move, in which order, and what they leave alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
from audit import audit
from ghostless.jobs import bulk_actions
from ghostless.jobs.bulk import ACTIONS, BulkAction, BulkFilter, BulkRequest, movable
from ghostless.jobs.bulk_actions import BulkActions
from ghostless.jobs.errors import BulkActionConflict, BulkActionNotFound, InvalidBulkAction, TooManyBulkActions
from ghostless.jobs.messages import Claimed, Held
from ghostless.jobs.store import Store
from ghostless.lua import BATCH
from ghostless.statemachine import STORED, TABLE, Event, Reason, State
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from scripts.seeding import OWNER, PATIENT, QUEUE, TYPE, Scene, ending, scene, submission
from scripts.snapshot import difference, snapshot

TYPES, QUEUES, OWNERS = ("demo.add", "demo.sub"), ("q", "q2"), ("ann", "")
EVERYTHING = BulkFilter(all=True)


def bring(store: Store, task_id: str, state: State, **changes: str) -> None:
    """Submit a task and bring it into a state by legal moves."""
    if state is State.BLOCKED:
        store.submit(submission(f"{task_id}-first", delay=1_000_000))
        changes = changes | {"depends_on": (f"{task_id}-first",)}
    store.submit(submission(task_id, PATIENT, delay=1_000_000 if state is State.SCHEDULED else 0, **changes))
    if state in (State.PENDING, State.SCHEDULED, State.BLOCKED, State.CANCELLED, State.PAUSED):
        {State.CANCELLED: store.cancel, State.PAUSED: store.pause}.get(state, lambda *_: None)(task_id, "tester")
        return
    held = start(store, task_id)
    if state in (State.PAUSING, State.CANCELLING):
        {State.PAUSING: store.pause, State.CANCELLING: store.cancel}[state](task_id, "tester")
    elif state is State.SUCCESS:
        store.finish(held, ending(Event.COMPLETE), "worker")
    elif state is State.TIMEOUT_CANCELLED:
        store.finish(held, ending(Event.TIMEOUT, Reason.DEADLINE, retryable=False), "worker")
    elif state is not State.PROCESSING:
        store.finish(held, ending(Event.FAIL, retryable=state is State.RETRY_WAITING), "worker")


def start(store: Store, task_id: str) -> Held:
    """Start a task on a worker of its own."""
    store.redis.lrem(store.keys.rq_queue(str(store.redis.hget(store.keys.task(task_id), "queue"))), 1, task_id)
    store.redis.hset(store.keys.rq_job(task_id), "status", "started")
    claimed = store.start(task_id, f"w-{task_id}", "aa11")
    assert isinstance(claimed, Claimed)
    return claimed.held


def states_of(stage: Scene) -> dict[str, State]:
    """Return the state of each task."""
    names = stage.redis.scan_iter(stage.keys.task("*"))
    return {
        name.removeprefix(stage.keys.task("")): State(str(stage.redis.hget(name, "state"))) for name in sorted(names)
    }


def begun(stage: Scene, action: str, wanted: BulkFilter = EVERYTHING, **changes: object) -> str:
    """Accept a bulk action; return its id."""
    return BulkActions(stage.store).begin(BulkRequest(action, wanted, **changes), "tester").bulk_id  # type: ignore[arg-type]


def worked_off(stage: Scene, bulk_id: str) -> BulkAction:
    """Do all pages, and return what became of the bulk action."""
    actions = BulkActions(stage.store)
    for _ in range(1000):
        if actions.work_off().looked_at < BATCH:
            break
    return actions.get(bulk_id)


@contextmanager
def pages_of(looks: int) -> Iterator[None]:
    """Let each page be of so many tasks."""
    with patch.object(bulk_actions, "LOOKS", looks), patch.object(bulk_actions, "PASSES", 100):
        yield


# Against a model

tasks = st.lists(
    st.tuples(
        st.sampled_from([state for state in STORED if state is not State.BLOCKED]),
        st.sampled_from(TYPES),
        st.sampled_from(QUEUES),
        st.sampled_from(OWNERS),
    ),
    max_size=8,
)


@st.composite
def requests(draw: st.DrawFn) -> BulkRequest:
    """Return any bulk action on such tasks, of those that name them too."""
    action = draw(st.sampled_from(sorted(ACTIONS)))
    wanted = BulkFilter(
        draw(st.none() | st.sampled_from(movable(action))),
        draw(st.none() | st.sampled_from(TYPES)),
        draw(st.none() | st.sampled_from(QUEUES)),
        draw(st.none() | st.just("ann")),
        ids=draw(st.just(()) | st.lists(st.sampled_from([f"t{number}" for number in range(9)]), unique=True)),
        all=True,
    )
    return BulkRequest(action, wanted, limit=draw(st.just(100) | st.integers(1, 4)))


@given(tasks, requests(), st.integers(1, 4))
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_a_bulk_action_does_what_a_plain_model_says(
    redis: Redis, given: list, request: BulkRequest, looks: int
) -> None:
    """Those that the filter accepts are moved as by a person, up to the limit, and all others are left alone."""
    stage = scene(redis)
    stage.start_over()
    for number, (state, task_type, queue, owner) in enumerate(given):
        bring(stage.store, f"t{number}", state, type=task_type, queue=queue, owner=owner)
    before, expected = states_of(stage), dict(states_of(stage))
    accepted = [f"t{number}" for number, task in enumerate(given) if accepts(request.filter, number, *task)]
    if request.filter.ids:
        accepted = [task_id for task_id in request.filter.ids if task_id in accepted]
    else:
        accepted = [task_id for task_id in accepted if before[task_id] in movable(request.action)]
    counted = BulkActions(stage.store).count(request)
    with pages_of(looks):
        done = worked_off(stage, BulkActions(stage.store).begin(request, "tester").bulk_id)
    after = states_of(stage)
    moved = [task_id for task_id in after if after[task_id] != before[task_id]]
    able = [task_id for task_id in accepted if before[task_id] in movable(request.action)]
    assert counted.matched == len(able)
    assert set(counted.sample) == set(able)
    for task_id in moved:
        expected[task_id] = TABLE[before[task_id], ACTIONS[request.action]]
    assert expected == after
    assert set(moved) <= set(able)
    acted_on = done.counts["moved"] + done.counts["already"] + done.counts["refused"]
    assert (min(request.limit, len(accepted)), len(moved)) == (acted_on, done.counts["moved"])
    assert (done.state, done.reached_limit) == ("done", len(accepted) > request.limit) or len(accepted) == request.limit
    assert [] == audit(redis, stage.keys, before)


def accepts(wanted: BulkFilter, number: int, state: State, task_type: str, queue: str, owner: str) -> bool:
    """The filter, in words of its own."""
    is_named = not wanted.ids or f"t{number}" in wanted.ids
    return is_named and (
        wanted.state in (None, state)
        and wanted.type in (None, task_type)
        and wanted.queue in (None, queue)
        and wanted.owner in (None, owner)
    )


# Order, limits, counts


def submit_some(stage: Scene, number: int, **changes: object) -> list[str]:
    """Submit tasks, each in a millisecond of its own."""
    ids = [f"t{index:02}" for index in range(number)]
    for index, task_id in enumerate(ids):
        stage.store.submit(submission(task_id, **changes))
        stage.redis.hset(stage.keys.task(task_id), "entered_at", 1000 + index)
        owned = stage.keys.owned(str(changes.get("owner", OWNER)))
        for name in (stage.keys.state(State.PENDING), stage.keys.pending(QUEUE), owned):
            stage.redis.zadd(name, {task_id: 1000 + index})
    return ids


def test_the_oldest_come_first_and_the_limit_holds(backend: Redis) -> None:
    """Three of five are cancelled, those that entered their state first; the record says that there may be more."""
    stage = scene(backend)
    ids = submit_some(stage, 5)
    with pages_of(2):
        done = worked_off(stage, begun(stage, "cancel", BulkFilter(type=TYPE), limit=3))
    assert ids[:3] == [task_id for task_id, state in states_of(stage).items() if state is State.CANCELLED]
    assert ids[3:] == stage.queue
    assert (done.state, done.reached_limit, dict(done.counts)) == (
        "done", True, {"looked_at": 3, "moved": 3, "already": 0, "refused": 0, "damaged": 0},
    )  # fmt: skip


def test_the_history_says_which_bulk_action_it_was(redis: Redis) -> None:
    """Actor and message are those of the person, and the message names the bulk action."""
    stage = scene(redis)
    bring(stage.store, "t1", State.FAILED)
    bulk_id = begun(stage, "retry", BulkFilter(state=State.FAILED), message="the driver was broken")
    worked_off(stage, bulk_id)
    entry = redis.xrevrange(stage.keys.history, count=1)[0][1]
    assert ("RETRY", "tester", Reason.OPERATOR, f"bulk action {bulk_id}: the driver was broken") == tuple(
        entry[name] for name in ("event", "actor", "reason", "message")
    )


def test_tasks_that_are_named_each_have_an_answer(backend: Redis) -> None:
    """Who names tasks is told of those that could not be moved; one of another owner is as good as none."""
    stage = scene(backend)
    for task_id, state in (("t1", State.PENDING), ("t2", State.SUCCESS), ("t3", State.PAUSED), ("t4", State.PENDING)):
        bring(stage.store, task_id, state, owner="bob" if task_id == "t4" else "ann")
    ids = ("t1", "t2", "t3", "t4", "nobody")
    request = BulkRequest("pause", BulkFilter(ids=ids), bound_to="ann")
    done = worked_off(stage, BulkActions(stage.store).begin(request).bulk_id)
    assert {"looked_at": 5, "moved": 1, "already": 1, "refused": 1, "damaged": 0} == dict(done.counts)
    assert [
        {"id": "t2", "answer": "refused", "state": "SUCCESS"},
        {"id": "t4", "answer": "unmatched", "state": ""},
        {"id": "nobody", "answer": "unmatched", "state": ""},
    ] == list(done.told)
    assert not backend.exists(stage.keys.bulk_ids(done.id))


@pytest.mark.parametrize("filter", [{"after": 1002 / 1000}, {"before": 1002 / 1000}])
def test_the_time_of_the_last_change_is_bounded(redis: Redis, filter: dict[str, float]) -> None:
    """Both bounds are included."""
    stage = scene(redis)
    ids = submit_some(stage, 5)
    wanted = ids[2:] if "after" in filter else ids[:3]
    assert len(wanted) == BulkActions(stage.store).count(BulkRequest("cancel", BulkFilter(**filter))).matched
    worked_off(stage, begun(stage, "cancel", BulkFilter(**filter)))
    assert wanted == [task_id for task_id, state in states_of(stage).items() if state is State.CANCELLED]


def test_several_bulk_actions_take_turns(redis: Redis) -> None:
    """Each has a page before one of them has a second one."""
    stage = scene(redis)
    submit_some(stage, 6)
    for number in range(6):
        stage.store.submit(submission(f"s{number}", type="demo.sub"))
    first, second = (begun(stage, "cancel", BulkFilter(type=name)) for name in TYPES)
    actions = BulkActions(stage.store)
    with pages_of(2):
        for _ in range(2):
            actions.work_off()
    assert [2, 2] == [actions.get(bulk_id).counts["looked_at"] for bulk_id in (first, second)]


def test_many_of_one_millisecond_are_each_looked_at(redis: Redis) -> None:
    """Also when the one that marks the place leaves the index in between; who was moved is not met again."""
    stage = scene(redis)
    store, index = stage.store, stage.keys.state(State.PENDING)
    for number in range(12):
        store.submit(submission(f"t{number:02}", type=TYPES[number % 2]))
    redis.zunionstore(index, {index: 0})
    bulk_id = begun(stage, "cancel", BulkFilter(type=TYPE))
    with pages_of(3):
        BulkActions(store).work_off()
        store.cancel("t01", "somebody")  # where it goes on
        done = worked_off(stage, bulk_id)
    assert {f"t{number:02}" for number in range(1, 12, 2)} - {"t01"} == {
        task_id for task_id, state in states_of(stage).items() if state is State.PENDING
    }
    assert 6 == done.counts["moved"]


# What moves meanwhile


def test_a_cancel_goes_after_tasks_that_move_on(redis: Redis) -> None:
    """A task that is started, or whose retry is due, between two pages does not escape; a new one is left alone."""
    stage = scene(redis)
    store = stage.store
    for number in range(4):
        bring(store, f"t{number}", State.PROCESSING)
    bring(store, "t8", State.PENDING)
    bring(store, "t9", State.SCHEDULED)
    bulk_id = begun(stage, "cancel", EVERYTHING)
    with pages_of(2):
        BulkActions(store).work_off()
        for number in range(4):  # into states whose turn is over, when they are not cancelled yet
            if states_of(stage)[f"t{number}"] is State.PROCESSING:
                store.finish(Held(f"t{number}", 1, "aa11"), ending(Event.SUSPEND, Reason.SHUTDOWN), "worker")
        redis.hset(stage.keys.bulk(bulk_id), "created_at", stage.now() - 1)
        redis.hset(stage.keys.task("t0"), "submitted_at", 1)
        store.submit(submission("new"))
        done = worked_off(stage, bulk_id)
    states = states_of(stage)
    assert State.PENDING == states.pop("new")
    assert {State.CANCELLED, State.CANCELLING} >= set(states.values())
    assert ("done", 6) == (done.state, done.counts["moved"])


def test_a_resume_leaves_alone_what_is_paused_meanwhile(redis: Redis) -> None:
    """A pause that came after the bulk action is a decision of its own, as is a failure after a retry."""
    stage = scene(redis)
    for number in range(3):
        bring(stage.store, f"t{number}", State.PAUSED)
    bulk_id = begun(stage, "resume", EVERYTHING)
    redis.hset(stage.keys.bulk(bulk_id), "created_at", stage.now())
    while stage.now() <= int(str(redis.hget(stage.keys.bulk(bulk_id), "created_at"))):
        pass
    with pages_of(1):
        BulkActions(stage.store).work_off()
        stage.store.pause("t0", "somebody")
        done = worked_off(stage, bulk_id)
    assert {"t0": State.PAUSED, "t1": State.PENDING, "t2": State.PENDING} == states_of(stage)
    assert ("done", 3) == (done.state, done.counts["moved"])


def test_a_filter_that_names_a_state_means_who_is_in_it_since_before(redis: Redis) -> None:
    """Who enters the state afterwards is left alone, however often the watchdogs look."""
    stage = scene(redis)
    bring(stage.store, "t1", State.PENDING)
    bulk_id = begun(stage, "cancel", BulkFilter(state=State.PENDING))
    bring(stage.store, "t2", State.PENDING)
    redis.hset(stage.keys.task("t2"), "entered_at", stage.now() + 5)
    for name in (stage.keys.state(State.PENDING), stage.keys.pending(QUEUE)):
        redis.zadd(name, {"t2": stage.now() + 5})
    done = worked_off(stage, bulk_id)
    assert {"t1": State.CANCELLED, "t2": State.PENDING} == states_of(stage)
    assert ("done", False) == (done.state, done.reached_limit)


def test_one_that_is_stopped_does_no_more(redis: Redis) -> None:
    """What it has done stays done; to stop it twice changes nothing."""
    stage = scene(redis)
    submit_some(stage, 5)
    actions, bulk_id = BulkActions(stage.store), begun(stage, "cancel")
    with pages_of(2):
        actions.work_off()
        assert actions.stop(bulk_id, "somebody")
        done = worked_off(stage, bulk_id)
    assert ("stopped", "somebody", 2) == (done.state, done.stopped_by, done.counts["moved"])
    assert not actions.stop(bulk_id, "another")
    assert done == actions.get(bulk_id)
    with pytest.raises(BulkActionNotFound):
        actions.stop("nothing")


# Asking


def test_a_dry_run_changes_nothing(redis: Redis) -> None:
    """Not a byte; and tells what the action would move."""
    stage = scene(redis)
    for number, state in enumerate((State.PENDING, State.PENDING, State.PROCESSING, State.SUCCESS)):
        bring(stage.store, f"t{number}", state, type=TYPES[number % 2])
    before, actions = snapshot(redis), BulkActions(stage.store)
    for wanted in (EVERYTHING, BulkFilter(type=TYPE), BulkFilter(ids=["t0", "t3", "x"])):
        counted = actions.count(BulkRequest("cancel", wanted))
        expected = {EVERYTHING: 3, BulkFilter(type=TYPE): 2}.get(wanted, 1) if not wanted.ids else 1
        assert (expected, True) == (counted.matched, counted.complete)
    assert {State.PENDING: 2, State.PROCESSING: 1} == actions.count(BulkRequest("cancel", EVERYTHING)).by_state
    assert {} == difference(before, snapshot(redis))


def test_a_dry_run_looks_at_so_many_only(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that it says that there are at least so many."""
    monkeypatch.setattr(bulk_actions, "COUNTED", 500)
    stage = scene(redis)
    stage.store.submit_many([submission(f"t{number}") for number in range(600)])
    counted = BulkActions(stage.store).count(BulkRequest("cancel", BulkFilter(type=TYPE)))
    assert (500, False, 20) == (counted.matched, counted.complete, len(counted.sample))
    assert (600, True) == (lambda count: (count.matched, count.complete))(
        BulkActions(stage.store).count(BulkRequest("cancel", EVERYTHING))
    )


def test_the_same_key_asks_for_the_same_bulk_action(redis: Redis) -> None:
    """Once is enough; for another wish the key is taken, and for another owner it is another key."""
    stage = scene(redis)
    actions, request = BulkActions(stage.store), BulkRequest("cancel", BulkFilter(type=TYPE), idempotency_key="k")
    first = actions.begin(request)
    before = snapshot(redis)
    assert (first.bulk_id, False) == actions.begin(request)
    with pytest.raises(BulkActionConflict):
        actions.begin(BulkRequest("pause", BulkFilter(type=TYPE), idempotency_key="k"))
    assert {} == difference(before, snapshot(redis))
    other = actions.begin(BulkRequest("cancel", BulkFilter(type=TYPE), idempotency_key="k", bound_to="ann"))
    assert other.created
    assert [other.bulk_id, first.bulk_id] == [one.id for one in actions.newest()]
    assert [other.bulk_id] == [one.id for one in actions.newest(bound_to="ann")]
    with pytest.raises(BulkActionNotFound):
        actions.get(first.bulk_id, bound_to="ann")


def test_so_many_run_at_a_time(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further one is refused until one has ended."""
    monkeypatch.setattr(bulk_actions, "RUNNING", 2)
    stage = scene(redis)
    first, _ = begun(stage, "cancel"), begun(stage, "cancel")
    with pytest.raises(TooManyBulkActions):
        begun(stage, "cancel")
    worked_off(stage, first)
    assert begun(stage, "cancel")


def test_an_owner_fills_his_own_share_only(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does he keep others from theirs, nor do his push theirs off the list, nor does he feel them."""
    monkeypatch.setattr(bulk_actions, "OWNERS_RUNNING", 2)
    monkeypatch.setattr(bulk_actions, "OWNERS_LISTED", 3)
    stage = scene(redis)
    actions, ask = BulkActions(stage.store), BulkRequest("cancel", EVERYTHING)
    others = [actions.begin(replace(ask, bound_to=owner)).bulk_id for owner in ("bob", "bob", None, None, None)]
    own: list[str] = []
    for _ in range(5):
        own += [actions.begin(replace(ask, bound_to="ann")).bulk_id for _ in range(2)]
        with pytest.raises(TooManyBulkActions, match="^2 bulk"):
            actions.begin(replace(ask, bound_to="ann"))
        for bulk_id in own[-2:]:
            actions.stop(bulk_id)
    assert [*own[:-4:-1], *others[::-1]] == [one.id for one in actions.newest()]
    assert own[:-4:-1] == [one.id for one in actions.newest(bound_to="ann")]


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("action", BulkRequest("purge", EVERYTHING)),
        ("filter", BulkRequest("cancel", BulkFilter())),
        ("filter.state", BulkRequest("cancel", BulkFilter(state=State.SUCCESS))),
        ("filter.type", BulkRequest("cancel", BulkFilter(type="a b"))),
        ("filter.queue", BulkRequest("cancel", BulkFilter(queue=""))),
        ("filter.owner", BulkRequest("cancel", BulkFilter(owner=""))),
        ("filter.owner", BulkRequest("cancel", BulkFilter(owner="bob"), bound_to="ann")),
        ("filter.after", BulkRequest("cancel", BulkFilter(after=float("nan")))),
        ("filter.before", BulkRequest("cancel", BulkFilter(before=-1))),
        ("filter.ids", BulkRequest("cancel", BulkFilter(ids=["t"] * 1001))),
        ("filter.ids", BulkRequest("cancel", BulkFilter(ids=["a/b"]))),
        ("limit", BulkRequest("cancel", EVERYTHING, limit=0)),
        ("limit", BulkRequest("cancel", EVERYTHING, limit=100_001)),
        ("idempotency_key", BulkRequest("cancel", EVERYTHING, idempotency_key="")),
    ],
)
def test_what_cannot_be_used_is_named(redis: Redis, field: str, request_: BulkRequest) -> None:
    """By its field, before anything is stored."""
    for act in (BulkActions(scene(redis).store).begin, BulkActions(scene(redis).store).count):
        with pytest.raises(InvalidBulkAction) as caught:
            act(request_)
        assert [field] == [fault.field for fault in caught.value.faults]
    assert {} == snapshot(redis)


# Damage


def test_a_damaged_record_holds_up_no_other(redis: Redis) -> None:
    """It is set aside and told, and shown as damaged; the next one has its turn."""
    stage = scene(redis)
    submit_some(stage, 2)
    wrong_type, wrong_field, wrong_filter, wrong_score, healthy = (begun(stage, "cancel") for _ in range(5))
    redis.delete(stage.keys.bulk(wrong_type))
    redis.rpush(stage.keys.bulk(wrong_type), "of another type")
    redis.hset(stage.keys.bulk(wrong_field), "moved", "many")
    redis.hset(stage.keys.bulk(wrong_filter), "filter", '{"before":"noon"}')
    redis.hset(stage.keys.bulk(wrong_score), "score", "nan")
    actions = BulkActions(stage.store)
    problems = [problem for _ in range(4) for problem in actions.work_off().problems]
    assert [True] * 4 == [
        stage.keys.bulk(bulk_id) in problem
        for bulk_id, problem in zip((wrong_type, wrong_field, wrong_filter, wrong_score), problems, strict=True)
    ]
    assert ("done", 2) == ((done := worked_off(stage, healthy)).state, done.counts["moved"])
    assert 4 == redis.hlen(stage.keys.quarantine)
    assert [healthy, wrong_score, wrong_filter, wrong_field, wrong_type] == [one.id for one in actions.newest()]


def test_a_record_that_is_gone_holds_up_no_other(redis: Redis) -> None:
    """It is taken out, with all that it named, and told."""
    stage = scene(redis)
    submit_some(stage, 1)
    gone, healthy = begun(stage, "cancel", BulkFilter(ids=("t0",))), begun(stage, "cancel", EVERYTHING)
    redis.delete(stage.keys.bulk(gone))
    [problem] = BulkActions(stage.store).work_off().problems
    assert f"bulk actions that have a record, got {gone}" in problem
    assert ("done", 1) == ((done := worked_off(stage, healthy)).state, done.counts["moved"])
    assert [f"{stage.keys.bulks_running} {gone}"] == redis.hkeys(stage.keys.quarantine)
    assert not redis.exists(stage.keys.bulk_ids(gone))


def test_one_that_runs_has_no_time_to_live(redis: Redis) -> None:
    """However long no watchdog works it off; from its end on it has, be it done or stopped."""
    stage = scene(redis)
    ids = ("t0", "t1", "t2")
    for task_id in ids:
        stage.store.submit(submission(task_id))
    named, stopped = begun(stage, "cancel", BulkFilter(ids=ids)), begun(stage, "pause")
    with pages_of(1):
        BulkActions(stage.store).work_off()
    kept = (stage.keys.bulk(named), stage.keys.bulk_ids(named), stage.keys.bulk(stopped))
    assert [-1] * 3 == [redis.pttl(name) for name in kept]
    assert [] == audit(redis, stage.keys)
    BulkActions(stage.store).stop(stopped)
    worked_off(stage, named)
    assert all(0 < redis.pttl(stage.keys.bulk(one)) <= bulk_actions.KEPT_FOR for one in (named, stopped))
    assert [] == audit(redis, stage.keys)


def test_a_damaged_task_is_counted_and_passed_over(redis: Redis) -> None:
    """The others are moved, and the record says what is wrong with it; but not to who may not see whose it is."""
    stage = scene(redis)
    ids = submit_some(stage, 3, owner="ann")
    redis.delete(stage.keys.task(ids[0]))
    redis.rpush(stage.keys.task(ids[0]), "of another type")
    redis.hset(stage.keys.task(ids[1]), "policy", "broken")
    request = BulkRequest("cancel", EVERYTHING, bound_to="ann")
    hidden = worked_off(stage, BulkActions(stage.store).begin(request).bulk_id)
    assert (1, 1) == (hidden.counts["moved"], hidden.counts["damaged"])
    shown = worked_off(stage, begun(stage, "cancel"))
    assert (0, 2) == (shown.counts["moved"], shown.counts["damaged"])
    assert ids[:2] == [told["id"] for told in shown.told]


def test_a_damaged_index_is_told_and_waited_for(redis: Redis) -> None:
    """The action goes on when it was put right; until then the watchdogs do not go round and round."""
    stage = scene(redis)
    submit_some(stage, 2)
    index, bulk_id = stage.keys.state(State.SCHEDULED), begun(stage, "cancel")
    redis.set(index, "of another type")
    swept = BulkActions(stage.store).work_off()
    assert (True, 0) == (index in swept.problems[0], swept.looked_at)
    assert "running" == BulkActions(stage.store).get(bulk_id).state
    redis.delete(index)
    assert 2 == worked_off(stage, bulk_id).counts["moved"]


# Cost


def test_without_a_bulk_action_a_page_costs_next_to_nothing(redis: Redis) -> None:
    """One call, with two commands in it."""
    stage = scene(redis)
    submit_some(stage, 3)
    BulkActions(stage.store).work_off()
    redis.config_resetstat()
    BulkActions(stage.store).work_off()
    stats = redis.info("commandstats")
    assert {"cmdstat_evalsha": 1, "cmdstat_type": 1, "cmdstat_lindex": 1} == {
        name: row["calls"] for name, row in stats.items() if "config" not in name
    }


def test_a_page_ends_after_its_time(redis: Redis) -> None:
    """However few tasks that are: with no time at all it is one a page."""
    stage = scene(redis)
    submit_some(stage, 3)
    begun(stage, "cancel")
    with patch.object(bulk_actions, "PAGE_TIME", 0):
        assert [1, 1, 1] == [BulkActions(stage.store).work_off().moved for _ in range(3)]
