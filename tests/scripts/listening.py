"""What listeners do on a database: they read the history, and tell callbacks of ended tasks."""

from ghostless.jobs.consumer import Consumer
from ghostless.jobs.deliveries import Deliveries, Taken
from ghostless.jobs.delivery import Delivery, Try
from ghostless.jobs.groups import BEGINNING, Groups
from ghostless.jobs.keys import CALLBACKS
from ghostless.jobs.reads import Reads
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import Event

GROUP, HOST = "listener:tell", "example.com"
URL = f"https://{HOST}/hook"
LEASE = 60.0


def groups_of(store: Store) -> Groups:
    """Return the groups, whose scripts the store calls, so that it sees them."""
    groups = Groups(store.redis, Settings())
    groups.scripts = store.scripts  # type: ignore[misc]
    return groups


def deliveries_of(store: Store) -> Deliveries:
    """Return the deliveries, whose scripts the store calls."""
    return Deliveries(store.redis, store.keys, store.scripts)


def consumer_of(store: Store, name: str = "one") -> Consumer:
    """Return a listener's place in the group."""
    return Consumer(groups_of(store), GROUP, name, LEASE)


def listen(store: Store, name: str = "one", most: int = 9, needed: str = "") -> list[str]:
    """Let a listener ask for what there is; return the ids of the entries that it is handed."""
    heard = consumer_of(store, name).listen(tuple(Event), most, needed)
    return [handed.entry.id for handed in heard.handed] if heard else []


def let_another_die(store: Store) -> None:
    """Let a group have the whole history to read, of which a dead listener holds the first entry."""
    groups_of(store).create(GROUP, BEGINNING)
    [held] = listen(store, "dead", 1)
    store.redis.xclaim(store.keys.history, GROUP, "dead", 0, [held], idle=round(2000 * LEASE), justid=True)


def let_it_be_idle(store: Store) -> None:
    """Let a listener of the group hold nothing."""
    groups_of(store).create(GROUP)
    listen(store)


def plan(store: Store, task_id: str) -> None:
    """Note that the end of a task is to be told."""
    deliveries_of(store).plan(Reads(store.redis, store.keys).history(task_id)[-1])


def take(store: Store) -> list[Taken]:
    """Take deliveries that are due."""
    return deliveries_of(store).take(9, {})


def untold(store: Store, task_id: str) -> Taken:
    """Return the delivery that there must be of a task's end, of which no record is there."""
    entry = Reads(store.redis, store.keys).history(task_id)[-1]
    return Taken(Delivery(entry, URL), "", entry.at, 0.0)


def note(store: Store, taken: Taken) -> None:
    """Write down that a receiver did not take what was delivered."""
    deliveries_of(store).note(taken, *taken.delivery.tried(Try(taken.at, 9, 503), 0, 0.5))


def announce_callbacks(store: Store) -> None:
    """Let a listener have told that it delivers callbacks."""
    groups_of(store).create(CALLBACKS)
