"""`GET /api/tasks`: pages that lose and repeat nothing, whatever happens between them, and are bounded in cost."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from ghostless.jobs import listing
from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from redis import Redis
from web_tools import Hand, end_retention, publish, submitted


def pages(web: FlaskClient, path: str) -> Iterator[list[Any]]:
    """Yield page after page by their Link."""
    while path:
        answer = web.get(path)
        assert 200 == answer.status_code, answer.text
        link = answer.headers.get("Link", "")
        assert ("next" in link) == (answer.json["next"] is not None)
        yield answer.json["tasks"]
        path = link.removeprefix("<").removesuffix('>; rel="next"')


def test_what_stays_where_it_is_comes_exactly_once(
    web: FlaskClient, client: Client, redis: Redis, hand: Hand, store: Store
) -> None:
    """Between any two pages tasks are submitted, started, ended and purged; all the others come once, in order."""
    ids = [submitted(client, queue="still") for _ in range(60)]
    moving = [submitted(client) for _ in range(30)]
    ended = [hand.run() for _ in range(10)]
    ids[30:30] = [submitted(client, queue="still") for _ in range(20)]
    seen: list[Any] = []
    for number, page in enumerate(pages(web, "/api/tasks?limit=7")):
        seen += page
        submitted(client, queue="new")
        if number < 6:
            hand.finish(hand.start())
            end_retention(redis, client.store.keys, ended[number : number + 1])
            store.purge()
    found = [task["id"] for task in seen]
    still = [task_id for task_id in found if task_id in ids]
    assert sorted(ids) == sorted(still)
    assert len(set(found) - set(moving)) == len([task_id for task_id in found if task_id not in moving])
    times = [task["entered_at"] for task in seen if task["id"] in ids]
    assert sorted(times, reverse=True) == times


def test_an_owner_with_few_tasks_has_them_on_the_first_page(web: FlaskClient, client: Client) -> None:
    """However many others there are: his come from an index, and the page says that it is the last."""
    owner, mine = "Ann: [*] ü", []
    for number in range(300):
        submitted(client, owner="bob" if number % 2 else None)
        if number % 30 == 0:
            mine.append(submitted(client, owner=owner))
    (page,) = pages(web, f"/api/tasks?owner={quote(owner)}&limit=10")
    assert mine[::-1] == [task["id"] for task in page]


def test_what_is_rare_is_found_page_by_page(
    web: FlaskClient, client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where both owner and type have many, a page looks at so many records; who finds few goes on by its Link."""
    publish(store, "work", "rare")
    monkeypatch.setattr(listing, "LOOKED_AT", 20)
    rare = [submitted(client, type="rare", owner="ann")]
    for _ in range(80):
        submitted(client, owner="ann")
        submitted(client, type="rare", owner="bob")
    rare.append(submitted(client, type="rare", owner="ann"))
    found = list(pages(web, "/api/tasks?type=rare&owner=ann&limit=10"))
    assert [rare[1]] == [task["id"] for task in found[0]]
    assert [] in found
    assert 5 == len(found)
    assert rare[::-1] == [task["id"] for page in found for task in page]


def test_a_filter_reads_little_of_what_it_passes_over(
    web: FlaskClient, client: Client, store: Store, redis: Redis
) -> None:
    """Of a record that does not fit four fields are read, not the whole; of those that fit no more than the page."""
    publish(store, "work", "rare")
    for number in range(100):
        submitted(client, type="rare" if number % 10 == 0 else "work", owner="ann")
        submitted(client, type="rare", owner="bob")
    for filters, records in (("type=rare", 0), ("type=rare&owner=ann", 100)):
        redis.config_resetstat()
        assert 3 == len(web.get(f"/api/tasks?{filters}&limit=3").json["tasks"])
        stats = redis.info("commandstats")
        assert 3 == stats["cmdstat_hgetall"]["calls"]
        assert records == stats.get("cmdstat_hmget", {"calls": 0})["calls"]


def test_a_page_that_is_the_same_is_not_sent_again(web: FlaskClient, client: Client, hand: Hand) -> None:
    """The ETag is weak: it stands for the tasks, not for the place in the history that comes with them."""
    for _ in range(3):
        submitted(client)
    first = web.get("/api/tasks?queue=work")
    tag = first.headers["ETag"]
    assert tag.startswith('W/"')
    submitted(client, queue="elsewhere")
    assert 304 == web.get("/api/tasks?queue=work", headers={"If-None-Match": tag}).status_code
    hand.start()
    assert 200 == web.get("/api/tasks?queue=work", headers={"If-None-Match": tag}).status_code


def test_a_link_keeps_the_filters(web: FlaskClient, client: Client) -> None:
    """The next page is of the same listing, and of the same size."""
    for _ in range(5):
        submitted(client, owner="a&b=ü")
    first = web.get("/api/tasks", query_string={"owner": "a&b=ü", "state": "PENDING", "limit": "2"})
    found = list(pages(web, first.headers["Link"].removeprefix("<").removesuffix('>; rel="next"')))
    assert [2, 1] == [len(page) for page in found]


def test_the_history_is_not_sent_again(web: FlaskClient, client: Client, hand: Hand) -> None:
    """Until there is a further move."""
    task_id = submitted(client)
    path = f"/api/tasks/{task_id}/history"
    tag = web.get(path).headers["ETag"]
    assert 304 == web.get(path, headers={"If-None-Match": tag}).status_code
    hand.run()
    assert 3 == len(web.get(path, headers={"If-None-Match": tag}).json["entries"])
