"""The built-in alerts, called as the listener calls them, with a receiver on the loopback."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from ghostless.jobs import alerts
from ghostless.jobs.alerts import AlertNotSent, timeouts, worker_lost
from ghostless.jobs.client import Client
from ghostless.jobs.failure import describe_error
from ghostless.jobs.model import Entry
from ghostless.jobs.settings import Settings
from ghostless.statemachine import Reason
from receiver import Receiver, nonsense, receiving
from redis import Redis

HOUR = 1_796_000_000_000


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Where the alerts go."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def client(redis: Redis, settings: Settings, receiver: Receiver) -> Client:
    """The core, told to send alerts after more than two timeouts a minute."""
    told = {"alert_webhook": f"{receiver.url}hook", "alert_timeouts": 2, "alert_window": 60.0}
    return Client(replace(settings, **told), redis)


def timeout(second: float = 0, reason: Reason = Reason.DEADLINE, number: int = 0) -> Entry:
    """Return the entry of a timeout."""
    at = HOUR + round(1000 * second)
    task, message = f"t{number}", "no heartbeat from worker w1"
    return Entry(
        f"{at}-{number}", task, "TIMEOUT", "PROCESSING", "TIMEOUT", 1, "watchdog", reason, message, "image", "gpu"
    )


def test_lost_workers_are_told_of_but_no_flood_of_them(client: Client, receiver: Receiver) -> None:
    """Each alert names what is known; the fifth of a minute says that it is the last. Another timeout is none."""
    worker_lost(timeout(), client)
    assert [] == receiver.bodies
    for number in range(8):  # the last three at the same moment
        reason = Reason.WORKER_LOST if number else Reason.HEARTBEAT_LOST
        worker_lost(timeout(min(number, 5), reason, number), client)
    first, *_, last = texts = receiver.texts
    assert first == "A worker was lost: no heartbeat from worker w1 (heartbeat_lost): task t0 of type image, attempt 1"
    assert len(texts) == alerts.LOST_TOLD
    assert "further ones within 60 s are not told of" in last
    worker_lost(timeout(66, Reason.WORKER_LOST, 9), client)
    assert len(receiver.texts) == alerts.LOST_TOLD + 1
    assert receiver.bodies[0]["entry"]["task"] == "t0"
    assert 0 < client.store.redis.pttl(client.store.keys.alert_window("worker-lost")) <= alerts.LOST_WINDOW


def test_more_timeouts_than_usual_are_told_once_a_window(client: Client, receiver: Receiver) -> None:
    """The same entry counts once, however often it is handled; what is older than the window does not count."""
    for second in (0, 0, 0, 70, 80):
        timeouts(timeout(second), client)
    assert [] == receiver.bodies
    for second in (90, 91, 92):
        timeouts(timeout(second), client)
    [text] = receiver.texts
    assert text.startswith("Too many timeouts: more than 2 timeouts within 60 s, 3 by now: task t0")
    assert client.store.redis.pttl(client.store.keys.alert_window("timeouts")) > 0


@pytest.mark.parametrize("answer", [500, 404, 302, 307])
def test_an_alert_that_was_not_taken_is_sent_again_by_the_next_try(
    answer: int, client: Client, receiver: Receiver
) -> None:
    """Whatever was sent since; no redirect is followed, and the address is not told."""
    receiver.answers = [answer]
    lost = timeout(reason=Reason.WORKER_LOST, number=answer)
    with pytest.raises(AlertNotSent, match=f"answered {answer}") as caught:
        worker_lost(lost, client)
    assert "127.0.0.1" not in str(caught.value)
    worker_lost(timeout(1, Reason.WORKER_LOST, 1), client)
    worker_lost(lost, client)
    assert ["t" + str(answer), "t1", "t" + str(answer)] == [body["entry"]["task"] for body in receiver.bodies]


@pytest.mark.parametrize(
    ("number", "place"),
    list(enumerate(["http://s3cret:80x/", "http://s3cret/a b", "http://s3cret/\x01", "NONSENSE/s3cret"])),
)
def test_a_place_that_fails_oddly_keeps_no_other_from_its_alert(
    number: int, place: str, client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that cannot be used, or an answer that is no HTTP: the others are told, and the address is not."""
    others: list[str] = []
    monkeypatch.setattr(alerts, "_notify", lambda other, _title, _text: others.append(other))
    with nonsense() as odd:
        webhook = place.replace("NONSENSE", odd)
        both = Client(replace(client.settings, alert_webhook=webhook, alerts=("json://other",)), client.store.redis)
        with pytest.raises(AlertNotSent, match="not reached") as caught:
            worker_lost(timeout(4, Reason.WORKER_LOST, 100 + number), both)
    assert ["json://other"] == others
    assert "s3cret" not in describe_error(caught.value, "", "", retryable=True)["error"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_service_of_apprise_that_breaks_is_a_failure(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told without what it says, which may be the address."""

    class Broken:
        def add(self, address: str) -> bool:
            raise KeyError(address)

    monkeypatch.setattr(alerts, "import_module", lambda _name: SimpleNamespace(Apprise=Broken))
    nowhere = Client(replace(client.settings, alert_webhook="", alerts=("odd://s3cret",)), client.store.redis)
    with pytest.raises(AlertNotSent, match="could not send to odd: KeyError") as caught:
        worker_lost(timeout(5, Reason.WORKER_LOST, 10), nowhere)
    assert "s3cret" not in describe_error(caught.value, "", "", retryable=True)["error"]


def test_a_receiver_that_is_not_there_is_a_failure(client: Client) -> None:
    """Of the handler, which is called again."""
    away = Client(replace(client.settings, alert_webhook="http://127.0.0.1:1/"), client.store.redis)
    with pytest.raises(AlertNotSent, match="not reached"):
        worker_lost(timeout(reason=Reason.WORKER_LOST), away)


@pytest.mark.skipif(not find_spec("apprise"), reason="needs pip install 'ghostless[alerts]'")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Apprise, when it is imported
def test_a_further_try_goes_only_to_places_that_failed(client: Client, receiver: Receiver) -> None:
    """A webhook and Apprise beside each other: the one that took it is not told twice."""
    by_apprise = receiver.url.replace("http://", "json://")
    both = Client(replace(client.settings, alerts=(by_apprise,)), client.store.redis)
    receiver.answers = [500, 200]
    lost = timeout(2, Reason.WORKER_LOST, 7)
    with pytest.raises(AlertNotSent):
        worker_lost(lost, both)
    worker_lost(lost, both)
    assert ["entry" in body for body in receiver.bodies] == [True, False, True]
    assert "worker w1" in receiver.bodies[1]["message"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_place_that_apprise_does_not_know_is_a_failure(client: Client) -> None:
    """And so is Apprise that is not installed; neither tells the address."""
    nowhere = Client(replace(client.settings, alerts=("nonsense://secret",)), client.store.redis)
    with pytest.raises(AlertNotSent) as caught:
        worker_lost(timeout(3, Reason.WORKER_LOST, 8), nowhere)
    assert "secret" not in str(caught.value)


def test_nothing_is_listened_to_unless_a_place_is_set(client: Client) -> None:
    """The subscriptions of the alerts are there when there is somebody to tell."""
    assert [] == list(alerts.wanted(Settings()))
    assert ["worker-lost", "timeouts"] == [each.name for each in alerts.wanted(client.settings)]
