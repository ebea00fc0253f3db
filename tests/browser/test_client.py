"""The JavaScript client in a page of the server: submit, look, act, follow, and leave nothing behind."""

import json
from typing import Any

import pytest
from chromium import open_empty
from following import Follower
from ghostless.jobs.client import Client
from ghostless.jobs.keys import Keys
from ghostless.jobs.names import ID
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from ghostless.statemachine import FINAL
from helpers import eventually, expect
from http_proxy import BAD_GATEWAY, HttpProxy, Rules
from playwright.sync_api import Page
from redis import Redis
from web_tools import Hand, Served, end_retention, repeating, submitted

CALL = """async ([body, options]) => {
    const { Client, GhostlessError } = await import("/static/client.js");
    const timing = { backoffFirst: 50, backoffMost: 100, patience: 3000, ...options.timing };
    const client = new Client({ ...options, timing });
    try {
        return await new Function("client", `return (async () => { ${body} })()`)(client);
    } catch (error) {
        const { name, status, type, state, errors, message } = error;
        return { name, status, type, state, errors, message, isOurs: error instanceof GhostlessError };
    }
}"""


def call(page: Page, origin: str, body: str, **options: Any) -> Any:
    """Run code that has a `client`; return what it returns or, as plain values, the error that it throws."""
    if not page.url.startswith(origin):
        open_empty(page, origin)
    return page.evaluate(CALL, [body, options])


# Submit, look, act


def test_a_page_submits_and_acts(page: Page, served: Served, client: Client, store: Store) -> None:
    """Each call answers with what the API says."""
    made = call(page, served.url, "return client.submit('work', { n: 7 }, { id: 'a', owner: 'ann', delay: 60 })")
    assert {"id": "a", "state": "SCHEDULED", "created": True} == made
    assert ({"n": 7}, "ann") == (client.get("a").params, client.get("a").owner)
    assert "SCHEDULED" == call(page, served.url, "return (await client.get('a')).state")
    submitted(client, id="b")
    shown = call(page, served.url, "return client.list({ owner: 'ann', state: undefined, limit: 9 })")
    assert ["a"] == [task["id"] for task in shown["tasks"]]
    done = [
        call(page, served.url, f"return (await client.{action}('b', {{ message: 'why' }})).state")
        for action in ("pause", "resume", "cancel", "cancel")
    ]
    assert ["PAUSED", "PENDING", "CANCELLED", "CANCELLED"] == done
    assert ["", "why", "why", "why"] == [entry.message for entry in client.history("b")]


def test_errors_say_what_the_server_says(page: Page, served: Served, client: Client, hand: Hand) -> None:
    """All are of one root, and carry the problem document: the state that forbids it, the fields that are wrong."""
    submitted(client, id="a")
    hand.run()
    refused = call(page, served.url, "return client.pause('a')")
    assert "SUCCESS" in refused.pop("message")
    assert {
        "name": "ProblemError", "status": 409, "type": "urn:ghostless:illegal-move", "state": "SUCCESS", "errors": [],
        "isOurs": True,
    } == refused  # fmt: skip
    wrong = call(page, served.url, "return client.submit('work', { n: 'seven' })")
    assert (422, "/params/n") == (wrong["status"], wrong["errors"][0]["pointer"])
    assert (404, "urn:ghostless:task-not-found") == tuple(
        call(page, served.url, "return client.get('none')")[name] for name in ("status", "type")
    )


def test_a_submit_whose_answer_was_lost_is_one_task(page: Page, proxy: HttpProxy, client: Client) -> None:
    """It is asked for again with the same key until an answer comes."""
    open_empty(page, proxy.url)
    proxy.rules = Rules(swallows_answers=True)
    page.evaluate(f"([body, options]) => {{ window.answer = ({CALL})([body, options]); }}", [
        "return client.submit('work', { n: 1 })", {"timing": {"patience": 20_000}},
    ])  # fmt: skip
    eventually(lambda: expect(len([asked for asked in proxy.asked if asked.method == "POST"]) >= 3))
    proxy.rules = Rules()
    answer = page.evaluate("window.answer")
    assert [answer["id"]] == [task.id for task in client.list().tasks]
    assert 1 == len({asked.headers["idempotency-key"] for asked in proxy.asked if asked.method == "POST"})


BROKEN = """async () => {
    const { ProblemError, verdict } = await import("/static/client/errors.js");
    const { Http } = await import("/static/client/http.js");
    const cancel = () => Promise.reject(new TypeError("network error"));
    const answer = (status) => ({ status, headers: new Headers(), body: { cancel } });
    const verdicts = [verdict(await ProblemError.of(answer(502)))];
    window.fetch = async () => answer(401);
    const http = new Http(new URL(location.origin), async () => "token", { request: 1000 });
    return [...verdicts, verdict(await http.send("/", {}).catch((error) => error))];
}"""


def test_an_answer_that_breaks_off_is_judged_by_its_status(page: Page, served: Served) -> None:
    """Where the connection is lost behind a proxy's headers, nothing was refused, and the page must not give up."""
    open_empty(page, served.url)
    assert ["away", "fault"] == page.evaluate(BROKEN)


def test_patience_ends(page: Page, proxy: HttpProxy) -> None:
    """While a proxy answers in the server's place a request is repeated, but not for ever, whatever it asks for."""
    open_empty(page, proxy.url)
    proxy.rules = Rules(refuses="503 Service Unavailable\r\nRetry-After: 3600")
    busy = call(page, proxy.url, "return client.get('a')", timing={"patience": 300})
    assert ("ProblemError", 503, 2) == (
        busy["name"],
        busy["status"],
        len([asked for asked in proxy.asked if asked.is_api]),
    )
    proxy.rules = Rules(refuses=BAD_GATEWAY)
    refused = call(page, proxy.url, "return client.get('a')", timing={"patience": 300})
    assert ("ProblemError", 502, True) == (refused["name"], refused["status"], refused["isOurs"])
    assert len(proxy.asked) > 3
    proxy.close()
    lost = call(page, proxy.url, "return client.get('a')", timing={"patience": 300})
    assert ("Unreachable", True) == (lost["name"], lost["isOurs"])


def test_a_refused_token_is_renewed_once(page: Page, proxy: HttpProxy, client: Client) -> None:
    """A function is asked for a fresh token when the old one is refused; what is refused again is an error."""
    submitted(client, id="a")
    tokens = [client.tokens.add(name, [Scope.READ])[0] for name in ("ann", "bob")]
    body = f"""
        const {{ Client }} = await import('/static/client.js');
        window.given = 0;
        const own = new Client({{ token: () => {json.dumps(tokens)}[window.given++] }});
        return [(await own.get('a')).id, (await own.get('a')).id, window.given];
    """
    proxy.rules = Rules(token=tokens[1])
    assert ["a", "a", 2] == call(page, proxy.url, body)
    proxy.rules = Rules(token="another")
    refused = call(page, proxy.url, body)
    assert ("ProblemError", 401) == (refused["name"], refused["status"])
    assert 2 == page.evaluate("window.given")


BAD_ANSWERS = [
    "undefined", "''", "'<!doctype html><p>Log in'", "'gl_\u2026'", "Promise.reject(new Error('away'))",
    "new Promise(() => {})",
]  # fmt: skip
"""What a function may answer that is to get a token: nothing, a page, and never at all."""


@pytest.mark.parametrize("bad", BAD_ANSWERS)
def test_one_bad_answer_of_a_token_function_is_made_up_for(
    page: Page, served: Served, client: Client, hand: Hand, bad: str
) -> None:
    """It is asked again after a while, as any server that is away; meanwhile a watch says that it is not connected."""
    task_id, token = submitted(client), client.tokens.add("ann", [Scope.READ])[0]
    hand.run()
    body = f"""
        const {{ Client }} = await import('/static/client.js');
        const statuses = [], answers = [() => {bad}, () => {json.dumps(token)}];
        const token = () => (answers.length > 1 ? answers.shift() : answers[0])();
        const own = new Client({{ token, timing: {{ backoffFirst: 50, request: 500 }} }});
        const onConnection = ({{ status }}) => statuses.push(status);
        const [{{ state }}] = await own.watch(['{task_id}'], {{ onConnection }});
        return [statuses, state, answers.length];
    """
    assert [["reconnecting", "live"], "SUCCESS", 1] == call(page, served.url, body)


def test_an_abort_waits_for_no_token(page: Page, served: Served) -> None:
    """Whatever the function waits for."""
    body = """
        const { Client } = await import('/static/client.js');
        const own = new Client({ token: () => new Promise(() => {}) });
        const stop = new AbortController();
        setTimeout(() => stop.abort(), 100);
        return Promise.all([
            own.get('a', { signal: stop.signal }).catch(({ name }) => name), own.watch(['a'], { signal: stop.signal }),
        ]);
    """
    assert ["AbortError", []] == call(page, served.url, body)


@pytest.mark.parametrize("token", ["gl_a b", "gl_\u2026", "", 42])
def test_what_can_be_no_token_is_refused_at_once(page: Page, served: Served, token: object) -> None:
    """With words that say what is expected; `fetch` would say only that it failed."""
    refused = call(page, served.url, f"return new client.constructor({{ token: {json.dumps(token)} }})")
    assert "TypeError" == refused["name"]
    assert "visible ASCII" in refused["message"]


# Follow


def test_a_page_sees_a_task_from_its_first_move_to_its_last(
    page: Page, served: Served, client: Client, hand: Hand
) -> None:
    """Whoever comes late is told what happened, then what happens; the watch ends with the task."""
    task_id = submitted(client)
    claimed = hand.start()
    follower = Follower(page, served.url).follow([task_id]).awaits(task_id, "PENDING", "PROCESSING")
    hand.finish(claimed)
    told = follower.awaits_end(client, task_id)
    assert [{"id": task_id, "state": "SUCCESS", "status": None}] == told["ends"]
    assert ["live"] == [connection["status"] for connection in told["connections"]]


def test_progress_and_log_lines_arrive(page: Page, served: Served, client: Client, hand: Hand, store: Store) -> None:
    """They are told while the page listens."""
    task_id = submitted(client)
    held = hand.start().held
    follower = Follower(page, served.url).follow([task_id]).awaits(task_id, "PENDING", "PROCESSING")

    def say() -> None:
        store.progress(held, 0.25, "a quarter")
        store.log(held, ["a line"])

    with repeating(say):
        eventually(lambda: expect(follower.told["progress"] and follower.told["log"]))
    assert (task_id, 0.25, "a quarter") == tuple(
        follower.told["progress"][0][name] for name in ("id", "progress", "message")
    )
    assert (task_id, "a line") == tuple(follower.told["log"][0][name] for name in ("id", "line"))


def test_a_task_that_is_not_there_ends_alone(
    page: Page, served: Served, client: Client, hand: Hand, redis: Redis, keys: Keys, store: Store
) -> None:
    """Never heard of, or purged: that is told, and the others are followed on."""
    purged = submitted(client)
    hand.run()
    end_retention(redis, keys, [purged])
    store.purge()
    task_id = submitted(client)
    follower = Follower(page, served.url).follow([task_id, "none", purged]).awaits(task_id, "PENDING")
    eventually(lambda: expect(len(follower.told["ends"]) >= 2))
    ends = sorted(follower.told["ends"], key=lambda end: end["status"])
    assert [
        {"id": "none", "state": None, "status": 404}, {"id": purged, "state": "SUCCESS", "status": 410},
    ] == ends  # fmt: skip
    hand.run()
    follower.awaits_end(client, task_id)


@pytest.mark.parametrize("number", [51, 151])
def test_more_tasks_than_one_stream_takes(
    page: Page, proxy: HttpProxy, client: Client, hand: Hand, number: int
) -> None:
    """Fifty go by each stream, and more than three streams take are polled; each is told to its end."""
    ids = [submitted(client) for _ in range(number)]
    follower = Follower(page, proxy.url).follow(ids)
    eventually(lambda: expect(len(follower.told["moves"]) >= number))
    assert 2 == proxy.streams  # of the hundred and fifty-one too: the third feed has one task too many for a stream
    for _ in ids:
        hand.run()
    follower.awaits_end(client, *ids)


AGAIN = """async ([id, other]) => {
    const told = new Promise((resolve) => {
        const onTask = (move) => move.id === id && move.state === "SUCCESS" && resolve();
        window.third = window.client.watch([id, other], { onTask });
    });
    await told.then(() => new Promise((resolve) => setTimeout(resolve, 100)));
    return (await window.client.watch([id]))[0].state;
}"""
"""Watch a task that has ended, while it is also watched together with one that has not."""


def test_a_watch_ends_beside_another(page: Page, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """Watches of a page share its stream; the end of one waits for no task of another, also of one that ended."""
    first, second = submitted(client), submitted(client, queue="other")
    Follower(page, proxy.url).follow([second]).awaits(second, "PENDING")
    page.evaluate("id => { window.both = window.client.watch([id]).then((ends) => ends[0].state); }", first)
    eventually(lambda: expect((2, 1) == (len(proxy.streams_asked), proxy.streams)))
    hand.run()
    assert "SUCCESS" == page.evaluate("window.both")
    assert "SUCCESS" == page.evaluate(AGAIN, [first, second])
    hand.run("other")
    assert ["SUCCESS", "SUCCESS"] == [end["state"] for end in page.evaluate("window.third")]


def test_a_fault_of_the_page_keeps_nobody_from_hearing(page: Page, served: Served, client: Client, hand: Hand) -> None:
    """A callback that throws is reported as an error of the page, and called again at the next move."""
    task_id = submitted(client)
    open_empty(page, served.url)
    hand.run()
    told = page.evaluate(
        """async (id) => {
            const { Client } = await import("/static/client.js");
            const states = [], errors = [];
            addEventListener("error", (event) => { errors.push(event.error.message); event.preventDefault(); });
            await new Client().watch([id], { onTask: ({ state }) => { states.push(state); throw new Error(state); } });
            return [states, errors];
        }""",
        task_id,
    )
    states = ["PENDING", "PROCESSING", "SUCCESS"]
    assert [states, states] == told


LEFT = """() => {
    const left = window.left = { timers: new Set(), requests: 0 };
    const { setTimeout: set, clearTimeout: clear, setInterval: every, clearInterval: stop, fetch: ask } = window;
    window.setTimeout = (call, ...rest) => {
        const timer = set(() => { left.timers.delete(timer); call(); }, ...rest);
        left.timers.add(timer);
        return timer;
    };
    window.setInterval = (...given) => { const timer = every(...given); left.timers.add(timer); return timer; };
    window.clearTimeout = (timer) => { left.timers.delete(timer); clear(timer); };
    window.clearInterval = (timer) => { left.timers.delete(timer); stop(timer); };
    window.fetch = (...given) => {
        left.requests += 1;
        const done = ask(...given);
        done.catch(() => {}).finally(() => { left.requests -= 1; });
        return done;
    };
}"""


@pytest.mark.parametrize("rules", [Rules(), Rules(refuses=BAD_GATEWAY), Rules(holds_streams=True)], ids=str)
def test_an_abort_ends_everything(page: Page, proxy: HttpProxy, client: Client, rules: Rules) -> None:
    """No timer, no request and no lock is left, whatever the client was doing; and the promise is kept."""
    task_id = submitted(client)
    page.add_init_script(f"({LEFT})()")
    proxy.rules = rules
    follower = Follower(page, proxy.url).follow([task_id])
    status = "reconnecting" if rules.refuses else "polling" if rules.holds_streams else "live"
    follower.awaits_status(status)
    page.evaluate("window.stop.abort()")
    eventually(lambda: expect(follower.told["finished"] is not None))
    eventually(lambda: expect(page.evaluate("[window.left.timers.size, window.left.requests]") == [0, 0]))
    eventually(lambda: expect(proxy.streams == 0))
    assert 0 == page.evaluate("navigator.locks.query().then(({ held, pending }) => held.length + pending.length)")


@pytest.mark.parametrize(
    "body",
    [
        *(f"watch([{wrong}])" for wrong in ("'a', 'a/b'", "42", "undefined", "'..'", "''")),
        *(f"watch({wrong})" for wrong in ("'01a2'", "undefined", "42", "{ id: 'a' }")),
        "get('..')", "get('')", "get(42)", "history()", "explain('a b')", "artifacts('..')", "cancel('../x')",
    ],
)  # fmt: skip
def test_what_can_be_no_id_is_refused(page: Page, proxy: HttpProxy, body: str) -> None:
    """Before anything is asked, with words that say what is expected: the server would refuse it with all others."""
    refused = call(page, proxy.url, f"return client.{body}")
    assert ("TypeError", True) == (refused["name"], "expected" in refused["message"])
    assert [] == [asked for asked in proxy.asked if asked.is_api]


def test_a_watch_may_begin_in_a_callback(page: Page, served: Served, client: Client, hand: Hand) -> None:
    """It is told the same moves, each once."""
    task_id = submitted(client)
    hand.run()
    open_empty(page, served.url)
    told = page.evaluate(
        """async (id) => {
            const { Client } = await import("/static/client.js");
            const client = new Client(), first = [], second = [];
            let inner;
            await client.watch([id], { onTask: ({ state }) => {
                first.push(state);
                inner ??= client.watch([id], { onTask: ({ state }) => second.push(state) });
            } });
            await inner;
            return [first, second];
        }""",
        task_id,
    )
    states = ["PENDING", "PROCESSING", "SUCCESS"]
    assert [states, states] == told


def test_the_client_knows_what_the_server_knows(page: Page, served: Served) -> None:
    """Which states are final, and what an id may be: what it keeps by itself is said elsewhere too."""
    open_empty(page, served.url)
    facts = page.evaluate("import('/static/client.js').then(({ FINAL, ID }) => [[...FINAL].sort(), ID.source])")
    assert [sorted(FINAL), f"^{ID.pattern}$"] == facts
