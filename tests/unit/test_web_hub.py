"""The hub and its inboxes without Redis: who hears what, and that nothing grows."""

import threading
import time

import pytest
from ghostless.jobs.model import Entry
from ghostless.web import hub as hub_module
from ghostless.web.cursors import Cursor
from ghostless.web.feeds import Feed
from ghostless.web.frames import NO_MOVES, Live, Moment
from ghostless.web.hub import Hub, HubClosed, HubFull
from ghostless.web.ring import Part
from ghostless.web.rooms import LOG_LIMIT, PENDING_LIMIT, Subscription
from ghostless.web.watch import Watch
from web_tools import until


class NoPast:
    """A history without a database; feeds over it never hear anything."""

    redis = keys = None

    def newest(self) -> Cursor:
        return Cursor("e1", (100, 0))


class Silent:
    """A feed that only comes round."""

    def __init__(self, redis: object, keys: object, hub: Hub) -> None:
        self.hub = hub
        self.listens = threading.Event()
        self.listens.set()

    def run(self) -> None:
        while self.hub.paused(0.01):
            pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch):
    """A hub whose feeds hear nothing; tests publish themselves."""
    monkeypatch.setattr(hub_module, "HistoryFeed", Silent)
    monkeypatch.setattr(hub_module, "LiveFeed", Silent)
    hub = Hub(NoPast(), 1_000)  # type: ignore[arg-type]
    yield hub
    hub.close()
    hub.join(5)


def move(number: int, task: str = "t", state: str = "PENDING", **fields: str) -> Moment:
    """Return a move of a task, later than 100."""
    given = {"type": "work", "queue": "q", "owner": ""} | fields
    return Moment(Entry(f"{100 + number}-0", task, "SUBMIT", "", state, 0, "a", "user", "", **given))


def say(hub: Hub, *moments: Moment) -> None:
    hub.publish(moments, moments[-1].at)


def progress(task: str, fraction: float, **fields: str) -> Live:
    return Live({"kind": "progress", "id": task, "progress": fraction, "type": "work", "queue": "q", **fields})


@pytest.mark.parametrize(
    ("watch", "heard"),
    [
        (Watch(), [1, 2, 3, 4]),
        (Watch(frozenset({"a", "c"})), [1, 3]),
        (Watch(owner="ann"), [2, 3]),
        (Watch(queue="gpu"), [3]),
        (Watch(type="video"), [4]),
        (Watch(frozenset({"a", "c"}), owner="ann"), [3]),
        (Watch(owner="ann", queue="q"), [2]),
        (Watch(owner="nobody"), []),
    ],
)
def test_each_listener_hears_what_it_asked_for_once(hub: Hub, watch: Watch, heard: list[int]) -> None:
    """Filters narrow each other down, and no move comes twice."""
    inbox = hub.subscribe(watch)
    say(
        hub, move(1, "a"), move(2, "b", owner="ann"), move(3, "c", owner="ann", queue="gpu"), move(4, "d", type="video")
    )
    batch = hub.take(inbox, 0)
    assert heard == [moment.at[0] - 100 for moment in batch.moves.moments]
    assert Cursor("e1", (104, 0)) == batch.position


def test_a_move_looks_only_at_listeners_of_its_task(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a move follows those who listen to its task, not all who listen."""
    asked: list[Watch] = []
    accepts = Watch.accepts
    monkeypatch.setattr(Watch, "accepts", lambda self, subject: asked.append(self) or accepts(self, subject))
    for number in range(1000):
        hub.subscribe(Watch(frozenset({f"t{number}"})))
    say(hub, move(1, "t7"))
    assert [frozenset({"t7"})] == [watch.tasks for watch in asked]


def test_a_slow_listener_loses_its_queue_and_not_the_knowledge(hub: Hub) -> None:
    """One move too many drops what waits and says so; after that it listens again, and the queue never grew."""
    inbox = hub.subscribe(Watch())
    for number in range(1, PENDING_LIMIT + 50):
        say(hub, move(number))
    batch = hub.take(inbox, 0)
    assert batch.lost
    assert () == batch.moves.moments
    say(hub, move(1000))
    batch = hub.take(inbox, 0)
    assert not batch.lost
    assert [(1100, 0)] == [moment.at for moment in batch.moves.moments]


def test_as_many_moves_as_the_queue_holds_are_kept(hub: Hub) -> None:
    """The limit itself loses nothing."""
    inbox = hub.subscribe(Watch())
    say(hub, *(move(number) for number in range(1, PENDING_LIMIT + 1)))
    batch = hub.take(inbox, 0)
    assert not batch.lost
    assert PENDING_LIMIT == len(batch.moves.moments)


def test_progress_is_coalesced_and_log_lines_are_bounded(hub: Hub) -> None:
    """Of a task's progress the newest waits, of log lines the last ones: what is live may be dropped."""
    inbox = hub.subscribe(Watch())
    for number in range(500):
        hub.tell(progress("a", number / 500))
        hub.tell(Live({"kind": "log", "id": "a", "line": str(number)}))
    batch = hub.take(inbox, 0)
    assert 1 + LOG_LIMIT == len(batch.live)
    assert b"0.998" in batch.live[0].frame
    assert b'"499"' in batch.live[-1].frame


def test_a_wait_ends_without_news(hub: Hub) -> None:
    """One clock wakes all who waited for long enough, also while nothing happens and nobody else comes."""
    inboxes = [hub.subscribe(Watch()) for _ in range(3)]
    waiters = [threading.Thread(target=hub.take, args=(inbox, 0.01)) for inbox in inboxes]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join(10)
        assert not waiter.is_alive()


def test_who_wants_no_progress_is_not_woken_by_it(hub: Hub) -> None:
    """A long poll that waits for another state sleeps through any number of progress reports."""
    inbox = hub.subscribe(Watch(frozenset({"a"}), live=False))
    hub.tell(progress("a", 0.5))
    assert not inbox.signal.is_set()


def test_memory_answers_only_for_its_own_history(hub: Hub) -> None:
    """Who has heard everything is told so; a place of another epoch is nothing that memory knows."""
    hub.subscribe(Watch())
    say(hub, move(1))
    here, elsewhere = (hub.replay(Watch(), Cursor(epoch, (100, 0))) for epoch in ("e1", "e2"))
    assert ((101, 0), None) == (here and here.reached, elsewhere)
    assert Part(NO_MOVES, (101, 0)) == hub.replay(Watch(), Cursor("e1", (101, 0)))


def test_another_history_is_told_to_everybody_before_its_moves(hub: Hub) -> None:
    """After a flush or a restore each listener gets a reset; what waited from before is dropped."""
    inbox = hub.subscribe(Watch())
    say(hub, move(1))
    hub.restart("epoch")
    say(hub, move(50))
    batch = hub.take(inbox, 0)
    assert batch.reset is not None
    assert ("epoch", Cursor("e1", (100, 0))) == (batch.reset.reason, batch.reset.cursor)
    assert [(150, 0)] == [moment.at for moment in batch.moves.moments]
    assert hub.take(inbox, 0).reset is None


def test_nothing_is_left_of_a_listener_that_left(hub: Hub) -> None:
    """The index holds only who listens; leaving twice does no harm."""
    inboxes = [hub.subscribe(Watch(frozenset({f"a{n}", "b"}), owner="ann")) for n in range(10)]
    inboxes += [hub.subscribe(Watch(owner="ann")), hub.subscribe(Watch())]
    assert 12 == hub.subscribers
    for inbox in [*inboxes, *inboxes]:
        hub.unsubscribe(inbox)
    assert 0 == hub.subscribers
    assert {} == hub._places


def test_there_is_a_limit_to_listeners(hub: Hub) -> None:
    """One process serves so many and refuses the next, so that plain requests still get in."""
    hub.limit = 2
    hub.take_place()
    hub.take_place()
    assert 2 == hub.places_held
    with pytest.raises(HubFull):
        hub.take_place()
    hub.leave_place()
    hub.take_place()
    hub.subscribe(Watch())  # what listens for the process itself takes no place
    hub.leave_place()
    hub.leave_place()
    assert 0 == hub.places_held


def test_a_closed_hub_wakes_everybody_and_refuses_the_next(hub: Hub) -> None:
    """Whoever waits is told at once to come back elsewhere."""
    inbox = hub.subscribe(Watch())
    taken: list[bool] = []
    waiter = threading.Thread(target=lambda: taken.append(hub.take(inbox, 30).closed))
    waiter.start()
    hub.close()
    waiter.join(5)
    assert [True] == taken
    with pytest.raises(HubClosed):
        hub.subscribe(Watch())


def test_a_draining_hub_ends_one_listener_after_the_other(hub: Hub) -> None:
    """Spread over the time that is given, so that the next process is not run over; who comes meanwhile is refused."""
    inboxes = [hub.subscribe(Watch()) for _ in range(20)]
    draining = threading.Thread(target=hub.drain, args=(0.5,))
    draining.start()
    until(lambda: any(inbox.closed for inbox in inboxes))
    with pytest.raises(HubClosed):
        hub.subscribe(Watch())
    say(hub, move(1))
    assert [1] == [len(hub.take(inbox, 0).moves.moments) for inbox in inboxes if not inbox.closed][:1]
    draining.join(5)
    assert all(inbox.closed for inbox in inboxes)
    assert not hub.alive


def test_few_listeners_make_no_long_drain(hub: Hub) -> None:
    """The pause between two ends is bounded, and a hub that nobody listens to is closed at once."""
    hub.subscribe(Watch())
    started = time.monotonic()
    hub.drain(1000)
    assert time.monotonic() - started < 5
    assert not hub.alive


def test_a_drain_can_be_cut_short(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing ends everybody who is left."""
    monkeypatch.setattr(hub_module, "DRAIN_PAUSE", 20)
    inboxes = [hub.subscribe(Watch()) for _ in range(3)]
    draining = threading.Thread(target=hub.drain, args=(60,))
    draining.start()
    until(lambda: any(inbox.closed for inbox in inboxes))
    assert not all(inbox.closed for inbox in inboxes)
    hub.close()
    draining.join(5)
    assert not draining.is_alive()
    assert all(inbox.closed for inbox in inboxes)


def test_what_was_removed_unread_is_looked_for_in_redis(hub: Hub) -> None:
    """Nobody is told moves that may lack some before them, and memory does not answer for the time of the hole."""
    inbox = hub.subscribe(Watch())
    say(hub, move(1))
    hub.publish([move(5)], (105, 0), complete=False)
    batch = hub.take(inbox, 0)
    assert (True, ()) == (batch.lost, batch.moves.moments)
    assert hub.replay(Watch(), Cursor("e1", (101, 0))) is None
    assert Part(NO_MOVES, (105, 0)) == hub.replay(Watch(), Cursor("e1", (105, 0)))


def test_no_feed_starts_before_anybody_listens(hub: Hub) -> None:
    """A process that only answers plain requests has no thread and no connection more; it counts as alive."""
    assert not hub.started
    assert hub.alive
    hub.subscribe(Watch())
    assert hub.started
    assert hub.alive


def test_many_first_listeners_start_the_feeds_once(hub: Hub) -> None:
    """Two requests at the same moment must not make two hubs of one."""
    threads = [threading.Thread(target=hub.subscribe, args=(Watch(),)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 20 == hub.subscribers
    assert {"hub-history", "hub-live", "hub-clock"} == {thread.name for thread in hub._threads}
    assert 3 == len(hub._threads)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_feed_that_ends_by_a_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead feed makes the hub not alive, ends every stream and refuses new ones: nobody waits for nothing."""

    class Faulty(Silent):
        def run(self) -> None:
            self.hub.paused(0.05)
            raise AssertionError("a fault of ours")

    monkeypatch.setattr(hub_module, "HistoryFeed", Faulty)
    monkeypatch.setattr(hub_module, "LiveFeed", Silent)
    hub = Hub(NoPast(), 1_000)  # type: ignore[arg-type]
    inbox = hub.subscribe(Watch())
    assert hub.take(inbox, 10).closed
    until(lambda: not hub.alive)
    with pytest.raises(HubClosed):
        hub.subscribe(Watch())
    hub.close()
    hub.join(5)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dying_feed_lets_nobody_in(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its thread still runs, to end everybody, who comes is refused already: nobody would end him."""
    alive: list[bool] = []
    monkeypatch.setattr(Silent, "run", lambda self: self.hub.paused(0.05) and 1 / 0)
    monkeypatch.setattr(Subscription, "close", lambda self: alive.append(hub.alive))
    hub.subscribe(Watch())
    until(lambda: alive)
    assert not any(alive)


def test_a_start_in_part_is_undone(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without threads for all feeds none goes on alone, and nobody starts a second one beside it."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_first(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_first)
    for _ in range(2):
        with pytest.raises(HubClosed):
            hub.subscribe(Watch())
    started[0].join(5)
    assert ([False], False) == ([thread.is_alive() for thread in started], hub.alive)


def test_the_pause_between_attempts_grows_and_is_bounded() -> None:
    """None without a failure, short after the first, jittered, and the same after a day as after a minute."""
    assert 0.0 == Feed._delay(0)
    assert all(0.1 <= Feed._delay(1) <= 0.2 for _ in range(100))
    assert all(1.0 <= Feed._delay(failures) <= 2.0 for failures in (10, 1_000, 100_000))
    assert len({Feed._delay(5) for _ in range(10)}) > 1


def test_a_feed_that_hangs_is_seen(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed that does not come round any more counts as dead although its thread lives."""
    hub.subscribe(Watch())
    monkeypatch.setattr(hub_module, "SILENCE", 0.0)
    assert not hub.alive
