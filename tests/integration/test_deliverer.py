"""The deliverer with receivers on the loopback, in this process: what is sent, and what becomes of each answer."""

import hashlib
import hmac
import json
import logging
import socket
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

import pytest
from audit import audit
from click.testing import CliRunner
from flask.testing import FlaskClient
from ghostless.jobs import callbacks, deliverer, posting
from ghostless.jobs.callbacks import plan
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.deliverer import Deliverer
from ghostless.jobs.deliveries import SHARE, Deliveries, Listed
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.errors import RedisUnavailable
from ghostless.jobs.keys import CALLBACKS
from ghostless.jobs.posting import Poster
from ghostless.jobs.settings import Settings
from ghostless.statemachine import Event, State
from helpers import eventually, expect
from odd_receivers import acting, answers, is_silent
from receiver import Receiver, receiving
from redis import Redis
from scripts.seeding import ID, Scene, finish, make_outdated, put, scene, submission
from scripts.test_deliveries import make_due
from standardwebhooks import Webhook

SECRETS = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Where callbacks go."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def client(redis: Redis, settings: Settings) -> Client:
    """The core, with two secrets, in a network where the loopback is one's own; a listener has been there."""
    home = (ip_network("127.0.0.0/8"),)
    client = Client(replace(settings, callback_secret=SECRETS, callback_networks=home), redis)
    client.listeners.create(CALLBACKS)
    return client


@pytest.fixture
def stage(redis: Redis, client: Client) -> Scene:
    """A store."""
    return scene(redis)


Run = Callable[..., None]


@pytest.fixture
def run(client: Client) -> Iterator[Run]:
    """Deliver until something holds."""
    with delivering(client) as run_until:
        yield run_until


@contextmanager
def delivering(client: Client) -> Iterator[Run]:
    """Let a deliverer be there; it runs until something holds."""
    stop = threading.Event()
    one = Deliverer(client, Poster(client.settings.callback_networks), stop)
    with ThreadPoolExecutor(deliverer.PLACES) as pool, pytest.MonkeyPatch.context() as patches:
        patches.setattr(deliverer, "LOOK", 0.05)

        def run_until(check: Callable[[], object]) -> None:
            def step() -> None:
                one.step(pool)
                assert check()

            eventually(step)

        yield run_until
        stop.set()


def end(stage: Scene, client: Client, url: str, task_id: str = ID) -> None:
    """Cancel a task with a callback, and plan that this is told."""
    stage.store.submit(submission(task_id, callback_url=url))
    stage.store.cancel(task_id, "tester")
    plan(client.history(task_id)[-1], client)


def states(client: Client, *task_ids: str) -> list[str]:
    """Return the states of the deliveries of some tasks."""
    return [listed.delivery.state for task_id in task_ids or (ID,) for listed in client.deliveries_of(task_id)]


def last_try(client: Client, task_id: str = ID) -> Listed | None:
    """Return the delivery of a task once it was tried."""
    [listed] = client.deliveries_of(task_id)
    return listed if listed.delivery.tries else None


def test_what_is_sent(stage: Scene, client: Client, receiver: Receiver, run: Run) -> None:
    """The task as it ended, signed with every secret as Standard Webhooks says."""
    put(stage, State.PROCESSING, callback_url=f"{receiver.url}hook?a=b", owner="ann", metadata_json='{"order": 7}')
    finish(stage, Event.COMPLETE)
    plan(client.history(ID)[-1], client)
    run(lambda: states(client) == ["delivered"])
    [(headers, raw)] = receiver.requests
    told, entry = json.loads(raw), client.history(ID)[-1]
    assert ("task.success", f"{ID}-{entry.id}") == (told["type"], headers["webhook-id"])
    assert told["timestamp"].endswith("Z")
    data = told["data"]
    assert {"id": ID, "state": "SUCCESS", "owner": "ann", "attempt": 1, "message": "said so"}.items() <= data.items()
    assert ({"sum": 3}, {"order": 7}, []) == (data["result"], data["metadata"], data["omitted"])
    assert (entry.at, True) == (data["finished_at"], data["submitted_at"] <= data["started_at"] <= entry.at)
    assert "params" not in data
    for secret in SECRETS:
        assert told == Webhook(secret).verify(raw, dict(headers))
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60


def test_the_signature_is_the_one_of_the_specification(
    stage: Scene, client: Client, receiver: Receiver, run: Run
) -> None:
    """HMAC-SHA256 over id, time and body, joined by full stops, with the bytes of the secret."""
    end(stage, client, receiver.url)
    run(lambda: receiver.requests)
    [(headers, raw)] = receiver.requests
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + raw
    keys = [b64decode(secret.removeprefix("whsec_")) for secret in SECRETS]
    right = [b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys]
    assert [f"v1,{signature}" for signature in right] == headers["webhook-signature"].split(" ")


def test_the_result_of_a_handler_may_be_too_large_to_tell(
    stage: Scene, client: Client, receiver: Receiver, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That there is one is told."""
    monkeypatch.setattr(callbacks, "VALUE_LIMIT", 5)
    put(stage, State.SUCCESS, callback_url=receiver.url)
    plan(client.history(ID)[-1], client)
    run(lambda: receiver.bodies)
    assert (["result"], False) == (receiver.bodies[0]["data"]["omitted"], "result" in receiver.bodies[0]["data"])


@pytest.mark.parametrize("change", ["purged", "retried", "damaged"])
def test_a_task_that_is_no_longer_as_it_ended(
    stage: Scene, client: Client, receiver: Receiver, run: Run, change: str
) -> None:
    """It is told how it ended all the same, with what its history entry knows."""
    put(stage, State.FAILED, callback_url=receiver.url)
    plan(client.history(ID)[-1], client)
    make_outdated(stage)
    {
        "purged": lambda: stage.store.purge(),
        "retried": lambda: stage.store.retry(ID, "tester"),
        "damaged": lambda: stage.redis.hset(stage.keys.task(ID), "state", "?"),
    }[change]()
    run(lambda: receiver.bodies)
    data = receiver.bodies[0]["data"]
    assert ("task.failed", "FAILED", "said so") == (receiver.bodies[0]["type"], data["state"], data["message"])
    assert "submitted_at" not in data


@pytest.mark.parametrize(
    ("answer", "state", "told"),
    [
        (200, "delivered", 200),
        (410, "gone", 410),
        *((status, "waiting", status) for status in (302, 307, 400, 404, 429, 500, 503)),
    ],
)
def test_what_becomes_of_an_answer(
    stage: Scene, client: Client, receiver: Receiver, run: Run, answer: int, state: str, told: int
) -> None:
    """2xx is taken, 410 ends it, anything else comes again; each is noted, and no redirect is followed."""
    receiver.answers = [answer]
    end(stage, client, receiver.url)
    run(lambda: last_try(client))
    [listed] = client.deliveries_of(ID)
    [only] = listed.delivery.tries
    assert (state, told, "") == (listed.delivery.state, only.status, only.error)
    assert 0 <= only.took < 10_000
    assert abs(only.at - stage.now()) < 10_000
    assert (listed.next_at is None) == (state != "waiting")
    assert 1 == len(receiver.bodies)
    assert [] == audit(stage.redis, stage.keys, [ID])


def test_a_further_try_has_the_same_id(stage: Scene, client: Client, receiver: Receiver, run: Run) -> None:
    """So that a receiver that took it, and whose answer was lost, can tell."""
    receiver.answers = [500]
    end(stage, client, receiver.url)
    run(lambda: last_try(client))
    make_due(stage)
    run(lambda: states(client) == ["delivered"])
    first, second = receiver.requests
    assert first[0]["webhook-id"] == second[0]["webhook-id"]
    assert [500, 200] == [each.status for each in client.deliveries_of(ID)[0].delivery.tries]


@pytest.mark.parametrize(("said", "least"), [("30", 29_000), ("7200", 3_599_000)])
def test_a_receiver_says_when_to_come_again(stage: Scene, client: Client, run: Run, said: str, least: int) -> None:
    """Within bounds: an hour is the most."""
    with acting(answers(f"HTTP/1.1 503 No\r\nRetry-After: {said}\r\n\r\n".encode())) as port:
        end(stage, client, f"http://127.0.0.1:{port}/")
        run(lambda: last_try(client))
    assert least <= (client.deliveries_of(ID)[0].next_at or 0) - stage.now() <= least + 6_000


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:1/", "refused"),
        ("http://nowhere.invalid/", "not found"),
        ("http://10.0.0.1/", "no callback may go"),
        ("https://169.254.169.254/latest", "no callback may go"),
    ],
)
def test_what_is_not_reached_is_noted_and_tried_again(
    stage: Scene, client: Client, run: Run, url: str, told: str
) -> None:
    """With why, in words of our own."""
    end(stage, client, url)
    run(lambda: last_try(client))
    [listed] = client.deliveries_of(ID)
    assert ("waiting", 0) == (listed.delivery.state, listed.delivery.tries[0].status)
    assert told in listed.delivery.tries[0].error


INSIDE = "127.0.0.2"
"""An address beside the only one that is open to callbacks in the tests below, 127.0.0.1."""


@pytest.fixture
def confined(client: Client) -> Client:
    """The core, where one address of the loopback is one's own, and all others are as private as any."""
    settings = replace(client.settings, callback_networks=(ip_network("127.0.0.1/32"),))
    return Client(settings, client.store.redis)


def leading(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let a name lead to these addresses, one answer after the other, the last one ever after; tell what was asked."""
    real, left, asked = socket.getaddrinfo, list(answers), list[str]()

    def looked_up(host: str, port: int, *rest: Any, **options: Any) -> Any:
        if not host.endswith(".example"):
            return real(host, port, *rest, **options)
        asked.append(host)
        found = left.pop(0) if left[1:] else left[0]
        return [each for address in found for each in real(address, port, *rest, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return asked


@contextmanager
def inside(port: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Listen where no callback may go; yield the port, and what connections there were."""
    came: list[str] = []
    with acting(lambda _: came.append("connected"), INSIDE, port) as port:
        yield port, came


@pytest.mark.parametrize("addresses", [[INSIDE], ["127.0.0.1", INSIDE], [INSIDE, "127.0.0.1"]])
def test_a_name_that_leads_inside_is_not_connected_to(
    stage: Scene, confined: Client, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    """Not to any of its addresses; the delivery says that no callback may go there, and not where that is."""
    leading(monkeypatch, addresses)
    with inside() as (port, came), delivering(confined) as run:
        end(stage, confined, f"http://inside.example:{port}/")
        run(lambda: last_try(confined))
        assert [] == came
    [only] = confined.deliveries_of(ID)[0].delivery.tries
    assert (0, True) == (only.status, "no callback may go" in only.error)
    assert "127.0" not in only.error


def test_a_name_that_leads_elsewhere_after_the_check_gains_nothing(
    stage: Scene, confined: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try looks it up once, and connects to what it checked; the next try checks what it leads to then."""
    asked = leading(monkeypatch, ["127.0.0.1"], [INSIDE])
    port = urlsplit(receiver.url).port or 0
    receiver.answers = [500]
    with inside(port) as (_, came), delivering(confined) as run:
        end(stage, confined, f"http://turns.example:{port}/")
        run(lambda: last_try(confined))
        assert (["turns.example"], 1, []) == (asked, len(receiver.bodies), came)
        make_due(stage)
        run(lambda: len(confined.deliveries_of(ID)[0].delivery.tries) == 2)
    assert (["turns.example"] * 2, 1, []) == (asked, len(receiver.bodies), came)
    first, second = confined.deliveries_of(ID)[0].delivery.tries
    assert (500, 0, True) == (first.status, second.status, "no callback may go" in second.error)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_leads_inside(stage: Scene, confined: Client, status: int) -> None:
    """It is an answer like others, and where it leads is not asked."""
    with inside() as (port, came), delivering(confined) as run:
        answer = f"HTTP/1.1 {status} There\r\nLocation: http://{INSIDE}:{port}/\r\nContent-Length: 0\r\n\r\n"
        with acting(answers(answer.encode())) as outside:
            end(stage, confined, f"http://127.0.0.1:{outside}/")
            run(lambda: last_try(confined))
        assert [] == came
    assert ["waiting"] == states(confined)
    assert [status] == [each.status for each in confined.deliveries_of(ID)[0].delivery.tries]


def test_a_receiver_that_hangs_holds_up_no_other(
    stage: Scene, client: Client, receiver: Receiver, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets its share of the places, whatever waits for it; a good one is told before the first try is given up."""
    monkeypatch.setattr(posting, "SECONDS", 2.0)
    hanging: list[int] = []

    def hang(connection: object) -> None:
        hanging.append(1)
        is_silent(connection)  # type: ignore[arg-type]

    def any_given_up() -> bool:
        return any(last_try(client, f"slow{number}") for number in range(deliverer.PLACES))

    with acting(hang) as port:
        for number in range(deliverer.PLACES + 1):
            end(stage, client, f"http://127.0.0.1:{port}/", f"slow{number}")
        end(stage, client, receiver.url.replace("127.0.0.1", "localhost"), "good")
        run(lambda: states(client, "good") == ["delivered"])
        assert not any_given_up()
        eventually(lambda: expect(len(hanging) == SHARE))
        run(any_given_up)


def test_many_ends_for_one_receiver(stage: Scene, client: Client, receiver: Receiver, run: Run) -> None:
    """Each is told as soon as there is a place, and none waits for anything else."""
    ids = [f"t{number}" for number in range(40)]
    for task_id in ids:
        end(stage, client, receiver.url, task_id)
    run(lambda: states(client, *ids) == ["delivered"] * 40)
    assert [] == audit(stage.redis, stage.keys, ids)


def test_what_came_of_a_try_is_noted_once_redis_answers(
    stage: Scene, client: Client, receiver: Receiver, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that took it is not asked again for an outage of seconds."""
    real, failures = Deliveries.note, [RedisUnavailable(OSError("away"))] * 2

    def note(*arguments: object) -> bool:
        if failures:
            raise failures.pop()
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Deliveries, "note", note)
    end(stage, client, receiver.url)
    run(lambda: states(client) == ["delivered"])
    assert 1 == len(receiver.bodies)


def test_one_that_was_held_too_long_is_not_sent(
    stage: Scene, client: Client, receiver: Receiver, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may be about to send it."""
    monkeypatch.setattr(deliverer, "TOO_LATE", -1)
    end(stage, client, receiver.url)
    run(lambda: last_try(client))
    assert [] == receiver.bodies


def test_the_url_is_shown_nowhere(
    stage: Scene, client: Client, receiver: Receiver, run: Run, web: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever knows it can use it: neither logs nor answers have more than its host."""
    caplog.set_level(logging.DEBUG)
    end(stage, client, f"{receiver.url}s3cret?t0ken")
    run(lambda: states(client) == ["delivered"])
    pages = [web.get(path).text for path in (f"/api/tasks/{ID}", f"/api/tasks/{ID}/deliveries", "/api/tasks")]
    for text in (*pages, caplog.text, json.dumps(client.explain(ID).to_dict())):
        assert "s3cret" not in text
        assert "t0ken" not in text
    assert "answered 200, delivered" in caplog.text


def test_deliveries_by_http(stage: Scene, client: Client, web: FlaskClient) -> None:
    """They are listed, and told again; what is not there is 404."""
    end(stage, client, "https://example.com/hook")
    [listed] = client.deliveries_of(ID)
    for each in client.deliveries.take(9, {}):
        client.deliveries.note(each, *each.delivery.tried(replace_try(each.now()), 0, 0.5))
    answer = web.get(f"/api/tasks/{ID}/deliveries")
    [shown] = answer.json["deliveries"]
    assert (200, listed.delivery.id, "task.cancelled") == (answer.status_code, shown["id"], shown["type"])
    assert ("https://example.com", "gone", None) == (shown["receiver"], shown["state"], shown["next_at"])
    assert [(410, "")] == [(each["status"], each["error"]) for each in shown["tries"]]
    again = web.post(f"/api/tasks/{ID}/deliveries/{shown['id']}/redeliver", json={})
    assert (202, "waiting") == (again.status_code, again.json["state"])
    assert 1 == client.deliveries.overview().hosts
    assert {"hosts": 1, "late": 0} == web.get("/api/stats").json["deliveries"]
    for method, path in (("get", "nobody/deliveries"), ("post", f"{ID}/deliveries/1-1/redeliver")):
        missing = getattr(web, method)(f"/api/tasks/{path}", **({"json": {}} if method == "post" else {}))
        assert (404, "application/problem+json") == (missing.status_code, missing.mimetype)
    stage.store.submit(submission("plain"))
    assert [] == web.get("/api/tasks/plain/deliveries").json["deliveries"]


def test_what_nobody_delivers_is_told(stage: Scene, client: Client, web: FlaskClient) -> None:
    """Once it has been due for a minute: that no listener runs would be noticed by nobody else."""
    end(stage, client, "https://example.com/")
    [(host, score)] = stage.redis.zrange(stage.keys.due_receivers, 0, -1, withscores=True)
    assert {"hosts": 1, "late": 0} == web.get("/api/stats").json["deliveries"]
    stage.redis.zadd(stage.keys.due_receivers, {host: score - 61_000})
    assert {"hosts": 1, "late": 1} == web.get("/api/stats").json["deliveries"]
    assert "ghostless_callback_hosts_late 1.0" in web.get("/metrics").text
    assert "does a listener with GHOSTLESS_CALLBACK_SECRET run?" in str(client.deliveries.overview())
    doctor = Doctor(client.store)
    assert [] == list(doctor.audit())
    assert 1 == doctor.deliveries.late


def test_the_doctor_finds_a_delivery_that_nobody_would_make(stage: Scene, client: Client) -> None:
    """Its place was lost; with a repair it has one again. What is no record is named."""
    end(stage, client, "https://example.com/")
    due = stage.keys.due_deliveries("example.com")
    for lost in ([due], [stage.keys.due_receivers], [due, stage.keys.due_receivers]):
        stage.redis.delete(*lost)
        [problem] = Doctor(client.store).audit()
        assert ("d", ID, "repairable") == (problem.rule, problem.task_id, problem.outcome)
        assert ["repaired"] == [each.outcome for each in Doctor(client.store, "tester").audit()]
    assert [] == list(Doctor(client.store).audit())
    assert 1 == client.deliveries.overview().hosts
    stage.redis.hset(stage.keys.deliveries(ID), "1-1", "nonsense")
    assert ["kept"] == [each.outcome for each in Doctor(client.store).audit()]
    stage.redis.delete(stage.keys.deliveries(ID), due, stage.keys.due_receivers)
    stage.redis.set(stage.keys.deliveries(ID), "x", ex=60)
    stage.redis.set(stage.keys.due_receivers, "x")
    problems = list(Doctor(client.store).audit())
    assert {"kept"} == {each.outcome for each in problems}
    for name, kind in ((stage.keys.deliveries(ID), "hash"), (stage.keys.due_receivers, "zset")):
        assert f"{name} is a string, not a {kind}" in [each.what for each in problems]


def replace_try(at: int) -> deliverer.Try:
    """Return a try that the receiver answered with 410."""
    return deliverer.Try(at, 3, 410)


def test_a_submit_with_a_callback_by_http(web: FlaskClient, client: Client, redis: Redis) -> None:
    """It is refused where it is wrong, and while nobody delivers any; the same id with another URL is a conflict."""
    body = {"type": "work", "id": "t7", "params": {}, "callback_url": "https://example.com/"}
    client.listeners.remove(CALLBACKS)
    refused = web.post("/api/tasks", json=body)
    assert (422, "/callback_url") == (refused.status_code, refused.json["errors"][0]["pointer"])
    assert "GHOSTLESS_CALLBACK_SECRET" in refused.json["errors"][0]["detail"]
    client.listeners.create(CALLBACKS)
    wrong = web.post("/api/tasks", json=body | {"callback_url": "https://user:s3cret@example.com/"})
    assert (422, "/callback_url") == (wrong.status_code, wrong.json["errors"][0]["pointer"])
    assert [202, 200] == [web.post("/api/tasks", json=body).status_code for _ in range(2)]
    assert "https://example.com/" == redis.get(client.store.keys.callback("t7"))
    assert 409 == web.post("/api/tasks", json=body | {"callback_url": "https://example.org/"}).status_code
    assert 409 == web.post("/api/tasks", json=body | {"callback_url": None}).status_code


@pytest.mark.usefixtures("web")  # which publishes the type
def test_a_callback_by_command(client: Client, redis: Redis, settings: Settings) -> None:
    """It is submitted with its task; what is told of a task is listed, and an unknown task named."""

    def command(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["--redis-url", settings.redis_url, *arguments])
        return result.exit_code, result.output

    url = "https://example.com/"
    assert 0 == command("submit", "work", "--id", "t8", "--callback-url", url)[0]
    assert url == redis.get(client.store.keys.callback("t8"))
    assert (0, "nothing is told of it, or not yet\n") == command("deliveries", "t8")
    client.cancel("t8")
    plan(client.history("t8")[-1], client)
    code, shown = command("deliveries", "t8")
    assert (0, True) == (code, "task.cancelled" in shown and "https://example.com" in shown)
    assert 1 == command("deliveries", "nobody")[0]
    assert 1 == command("submit", "work", "--callback-url", "http://example.com/")[0]
