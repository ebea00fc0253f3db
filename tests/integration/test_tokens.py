"""Tokens as they stand in Redis, and the verbs about them."""

import hmac
import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from audit import audit
from click.testing import CliRunner, Result
from ghostless import web
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.errors import CorruptRecord, InvalidToken, RedisUnavailable, TokenNotFound
from ghostless.jobs.keys import Keys
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope, Token, Tokens, split
from ghostless.statemachine import Policy
from redis import Redis

Cli = Callable[..., Result]


@pytest.fixture
def tokens(backend: Redis, keys: Keys) -> Tokens:
    """The tokens of an empty database."""
    return Tokens(backend, keys)


@pytest.fixture
def cli(settings: Settings, redis: Redis) -> Cli:
    """Run a verb against an empty database."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), env={"GHOSTLESS_REDIS_URL": settings.redis_url})

    return run


def test_what_pages_tell_people_to_run_is_taken(cli: Cli) -> None:
    """Each command that stands on a page is one that the command line takes."""
    pages = Path(web.__file__).parent / "templates"
    told = [
        command for page in pages.iterdir() for command in re.findall("<code>ghostless (.+?)</code>", page.read_text())
    ]
    assert told
    for command in told:
        assert 0 == cli(*shlex.split(command)).exit_code, command


def secret_of(text: str) -> str:
    """Return the secret part of a token's text."""
    parts = split(text)
    assert parts
    return parts[1]


def test_redis_holds_a_digest_and_nothing_that_lets_anybody_in(tokens: Tokens, backend: Redis, keys: Keys) -> None:
    """Who reads Redis, a backup of it or a log of its commands, has no token."""
    text, token = tokens.add("ci", [Scope.SUBMIT, Scope.READ], owner="ann")
    assert text == f"gl_{token.id}_{secret_of(text)}"
    assert len(secret_of(text)) >= 43  # 32 bytes in base64
    stored = backend.hgetall(keys.tokens)
    assert [token.id] == list(stored)
    assert secret_of(text) not in str(stored)
    assert secret_of(text) not in repr(token)
    assert "hash" not in token.to_dict()
    seen = tokens.look(token.id).token
    assert token == seen
    assert seen.matches(secret_of(text))
    assert not seen.matches(secret_of(text)[:-1])
    assert not seen.matches("")


def test_a_secret_is_compared_in_a_time_that_says_nothing(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the library's comparison, whether it is right or wrong."""
    compare, compared = hmac.compare_digest, list[bool]()
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append(compare(one, other)) or compared[-1])
    text, token = tokens.add("x", [Scope.READ])
    assert token.matches(split(text)[1])
    assert not token.matches("wrong")
    assert [True, False] == compared


def test_no_two_tokens_are_alike(tokens: Tokens) -> None:
    """Each has an id and a secret of its own."""
    texts = [tokens.add("ci", [Scope.READ])[0] for _ in range(20)]
    assert 20 == len({split(text) for text in texts}) == len({secret_of(text) for text in texts})


@pytest.mark.parametrize(
    "text", ["", "gl_", "x", "gl_0123456789ab_", "gl_0123456789ab_" + "a" * 42, "GL_0123456789ab_" + "a" * 43,
             "gl_0123456789ab_" + "a" * 43 + "\n", "gl_0123456789aB_" + "a" * 43, "gl_0123456789ab_" + "ä" * 43],
)  # fmt: skip
def test_what_is_no_token_is_not_looked_up(text: str) -> None:
    """Only the exact form is taken apart."""
    assert split(text) is None


def test_a_token_ends_by_the_clock_of_redis(tokens: Tokens) -> None:
    """Its life is counted from the moment that Redis names, to the millisecond."""
    _, token = tokens.add("ci", [Scope.READ], seconds=90)
    assert token.expires == token.created + 90_000
    assert not token.is_expired(token.created + 89_999)
    assert token.is_expired(token.created + 90_000)
    assert not tokens.add("ci", [Scope.READ])[1].is_expired(10**15)


def test_expired_tokens_are_forgotten_with_the_next_one(tokens: Tokens, backend: Redis, keys: Keys) -> None:
    """Tokens that a pipeline makes for an hour each do not pile up."""
    _, old = tokens.add("old", [Scope.READ], seconds=1)
    stored = json.loads(backend.hget(keys.tokens, old.id))
    backend.hset(keys.tokens, old.id, json.dumps(stored | {"expires": old.created}))
    _, fresh = tokens.add("new", [Scope.READ])
    assert [fresh.id] == list(tokens.all()[0])


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("a b", [Scope.READ]), "name"),
        (("", [Scope.READ]), "name"),
        (("ci", []), "scope"),
        (("ci", [Scope.READ], ""), "owner"),
        (("ci", [Scope.READ], "x" * 65), "owner"),
        (("ci", [Scope.READ], "a\r\nb"), "owner"),
        (("ci", [Scope.READ], "\ud800"), "owner"),
        (("ci", [Scope.READ, Scope.WORK], "ann"), "owner"),
        (("ci", [Scope.ADMIN], "ann"), "owner"),
        (("ci", [Scope.READ], None, 0), "expires"),
        (("ci", [Scope.READ], None, 1e12), "expires"),
        (("ci", [Scope.READ], None, float("nan")), "expires"),
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(
    tokens: Tokens, backend: Redis, arguments: Sequence[object], field: str
) -> None:
    """The fault is named, and nothing is stored; `work` and `admin` concern everybody's tasks."""
    with pytest.raises(InvalidToken) as refused:
        tokens.add(*arguments)  # type: ignore[arg-type]
    assert [field] == [fault.field for fault in refused.value.faults]
    assert 0 == backend.dbsize()


def test_admin_stands_for_every_scope_and_no_other_scope_for_another(tokens: Tokens) -> None:
    """Who may submit may not read by that."""
    for given in Scope:
        _, token = tokens.add("x", [given])
        expected = set(Scope) if given is Scope.ADMIN else {given}
        assert expected == {scope for scope in Scope if token.allows(scope)}


def test_a_revoked_token_is_gone(tokens: Tokens) -> None:
    """Revoking what is not there is told."""
    _, token = tokens.add("ci", [Scope.READ])
    tokens.revoke(token.id)
    assert tokens.look(token.id).token is None
    with pytest.raises(TokenNotFound, match="tokens list"):
        tokens.revoke(token.id)


DAMAGED = {"id": "abc", "name": "x", "scopes": ["admin"], "hash": "é", "created": 1, "owner": None, "expires": None}


@pytest.mark.parametrize("text", ["", "{}", "[]", "x", '{"scopes": ["everything"]}', json.dumps(DAMAGED)])
def test_a_damaged_record_lets_nobody_in(tokens: Tokens, backend: Redis, keys: Keys, text: str) -> None:
    """It is an error and no token, is listed as damaged, and can be revoked."""
    backend.hset(keys.tokens, "abc", text)
    with pytest.raises(CorruptRecord):
        tokens.look("abc")
    assert isinstance(tokens.all()[0]["abc"], CorruptRecord)
    tokens.revoke("abc")


def test_a_record_under_another_id_lets_nobody_in(tokens: Tokens, backend: Redis, keys: Keys) -> None:
    """A copied field is not a second token."""
    _, token = tokens.add("ci", [Scope.READ])
    backend.hset(keys.tokens, "abc", backend.hget(keys.tokens, token.id))
    with pytest.raises(CorruptRecord):
        tokens.look("abc")


def test_all_processes_sign_with_one_key(tokens: Tokens, backend: Redis, keys: Keys) -> None:
    """The first that asks makes it, the others find it."""
    key = tokens.signing_key()
    assert len(key) >= 43
    assert key == Tokens(backend, keys).signing_key() == tokens.look("").signing_key


def test_no_token_can_be_told_without_redis() -> None:
    """Redis away is an error of its own, never a yes or a no."""
    client = Client(Settings(redis_url="redis://127.0.0.1:1/0"))
    with pytest.raises(RedisUnavailable):
        client.tokens.look("abc")


def test_the_doctor_and_the_audit_know_what_tokens_keep(client: Client, store: Store, redis: Redis) -> None:
    """Neither key is a foreign one, and both stay for ever."""
    client.tokens.add("ci", [Scope.READ])
    client.tokens.signing_key()
    assert [] == [str(problem) for problem in Doctor(store).audit()]
    assert [] == audit(redis)


def test_the_verbs_add_list_and_revoke(cli: Cli, client: Client) -> None:
    """Only the token itself is on stdout, so that a script can keep it; the list shows no secret."""
    assert "there is no token" in cli("tokens").stdout
    options = ("--name", "ci", "--scope", "submit", "--scope", "read", "--owner", "ann", "--expires", "90d")
    added = cli("tokens", "add", *options)
    assert (0, True) == (added.exit_code, "shown this once" in added.stderr)
    parts = split(added.stdout.strip())
    assert parts
    token_id, secret = parts
    token = client.tokens.look(token_id).token
    assert isinstance(token, Token)
    assert ("ci", "ann", 90 * 86_400_000) == (token.name, token.owner, (token.expires or 0) - token.created)
    assert {Scope.SUBMIT, Scope.READ} == token.scopes
    listed = cli("tokens", "list")
    assert all(text in listed.stdout for text in (token_id, "ci", "read submit", "ann", "in 90 d"))
    shown = json.loads(cli("tokens", "--json").stdout)["tokens"]
    assert [token.to_dict()] == shown
    assert secret not in listed.stdout + str(shown)
    assert f"token {token_id} is revoked" in cli("tokens", "revoke", token_id).stdout
    assert 1 == cli("tokens", "revoke", token_id).exit_code
    assert "there is no token" in cli("tokens").stdout


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--scope", "submit", "--owner", "ann"), "ann"),
        (("--scope", "read", "--scope", "work"), "read-work"),
        (("--scope", "submit", "--owner", "ann", "--name", "ci"), "ci"),
    ],
)
def test_a_name_need_not_be_given(cli: Cli, options: Sequence[str], name: str) -> None:
    """It is then the owner's, or the scopes; two tokens may have the same."""
    made = [json.loads(cli("tokens", "add", *options, "--json").stdout) for _ in range(2)]
    assert [name] * 2 == [token["name"] for token in made]
    assert 2 == len({token["id"] for token in made})


def test_the_verb_prints_json_with_the_token(cli: Cli) -> None:
    """For programs that make tokens."""
    made = json.loads(cli("tokens", "add", "--name", "x", "--scope", "admin", "--json").stdout)
    parts = split(made["token"])
    assert parts
    assert (parts[0], ["admin"], None) == (made["id"], made["scopes"], made["expires"])


def test_the_verb_shows_damage_and_what_is_over(cli: Cli, client: Client, redis: Redis, keys: Keys) -> None:
    """Both stand in the list, so that somebody removes them."""
    _, token = client.tokens.add("old", [Scope.READ], seconds=5)
    stored = json.loads(redis.hget(keys.tokens, token.id))
    redis.hset(keys.tokens, mapping={token.id: json.dumps(stored | {"expires": 1}), "abc": "{"})
    listed = cli("tokens", "list").stdout
    assert "expired" in listed
    assert "token abc" in listed


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--name", "x"), 2),
        (("--name", "", "--scope", "read"), 1),
        (("--scope", "read", "--owner", "Ann B."), 1),
        (("--name", "x", "--scope", "everything"), 2),
        (("--name", "x", "--scope", "read", "--expires", "soon"), 2),
        (("--name", "x", "--scope", "admin", "--owner", "ann"), 1),
    ],
)
def test_the_verb_refuses_what_is_no_token(cli: Cli, redis: Redis, options: Sequence[str], code: int) -> None:
    """And stores nothing."""
    assert code == cli("tokens", "add", *options).exit_code
    assert 0 == redis.dbsize()


def test_a_schedule_keeps_no_secrets(cli: Cli, client: Client, store: Store, redis: Redis) -> None:
    """What a schedule submits stands in Redis for all to read; nothing is stored."""
    schema = {"type": "object", "properties": {"key": {"type": "string", "writeOnly": True}, "n": {"type": "integer"}}}
    kind = {"queue": "q", "policy": Policy().pack(), "schema": schema, "description": ""}
    store.publish_types({"t": kind})
    add = ("schedules", "add", "nightly", "--every", "1d", "--type", "t")
    refused = cli(*add, "-p", "key=s3cret")
    assert (1, True) == (refused.exit_code, "a schedule keeps no secrets" in refused.stderr)
    assert "s3cret" not in refused.output
    assert not redis.exists(store.keys.schedules)
    assert 0 == cli(*add, "-p", "n=1").exit_code
    shown = cli("submit", "t", "-p", "key=s3cret", "--id", "one")
    assert 0 == shown.exit_code
    assert {"key": "***"} == json.loads(cli("status", "one", "--json").stdout)["params"]
    assert "s3cret" not in cli("status", "one").stdout
