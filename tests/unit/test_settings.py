"""Settings from the environment: every wrong value is answered by name, with what was expected and what came."""

from dataclasses import FrozenInstanceError, fields
from ipaddress import ip_network

import pytest
from ghostless.jobs.errors import GhostlessError, InvalidSetting
from ghostless.jobs.settings import Settings

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

GOOD = {
    "redis_url": ("rediss://user:secret@host:6380/2", "rediss://user:secret@host:6380/2"),
    "prefix": ("team-a:", "team-a:"),
    "tasks": ("my_tasks, other.tasks ,", ("my_tasks", "other.tasks")),
    "handlers": ("my_handlers", ("my_handlers",)),
    "artifacts": ("/var/lib/artifacts", "/var/lib/artifacts"),
    "archive_to": ("/var/lib/archive", "/var/lib/archive"),
    "horse": ("fork", "fork"),
    "preload": ("Yes", True),
    "max_tasks_per_horse": ("500", 500),
    "max_horse_rss": ("8g", 8 * 1024**3),
    "beat": ("0.5", 0.5),
    "lease": ("30", 30.0),
    "grace": ("1e1", 10.0),
    "drain": ("0", 0.0),
    "health_port": ("9000", 9000),
    "sweep": ("0.05", 0.05),
    "tombstone": ("1", 1.0),
    "idempotency": ("86400", 86_400.0),
    "alerts": ("mailto://ops:secret@example.com  json://host", ("mailto://ops:secret@example.com", "json://host")),
    "alert_webhook": ("https://hooks.example.com/T0/secret", "https://hooks.example.com/T0/secret"),
    "alert_timeouts": ("3", 3),
    "streams_per_address": ("50", 50),
    "streams_per_token": ("0", 0),
    "alert_window": ("60", 60.0),
    "callback_secret": (f"{KEY} whsec_{'Y' * 86}==", (KEY, f"whsec_{'Y' * 86}==")),
    "callback_networks": ("127.0.0.0/8 fd00::/8", (ip_network("127.0.0.0/8"), ip_network("fd00::/8"))),
    "require_tokens": ("1", True),
    "allow_eviction": ("1", True),
}
NO_NUMBER = ("", "fast", "1h", "nan", "inf", "-inf", "-1", "1e12", "True", "None", "0x10", "5 s")
TIMES = ("beat", "lease", "grace", "sweep", "tombstone", "idempotency")
WRONG = [
    *(
        ("redis_url", value)
        for value in ("", "localhost", "http://host", "redis://host:port/0", "redis://host:99999/0")
    ),
    *(
        ("redis_url", value)
        for value in ("redis://host/name", "redis://[::1", "redis://host:6379/-1", "REDIS", "redis:")
    ),
    *(("prefix", value) for value in ("", "a b", "ü:", "x" * 65, "a\nb", "\x00")),
    *(("tasks", value) for value in ("my-tasks", "tasks.py/", "a..b", "1tasks", "a b")),
    *((name, value) for name in ("artifacts", "archive_to") for value in ("", "  ")),
    *(("handlers", value) for value in ("my-handlers", "a..b")),
    *(("alerts", value) for value in ("ops@example.com", "json://host secret")),
    *(("alert_webhook", value) for value in ("example.com", "ftp://host/", "https:///path", "https://a b")),
    *(
        ("alert_webhook", value)
        for value in ("http://host:80x/", "http://host:99999/", "http://host:0/", "http://:80/")
    ),
    *(
        ("alert_webhook", value)
        for value in ("http://[::1/", "http://me:word@host/", "http://host/\x01", "http://höst/")
    ),
    *(("alert_timeouts", value) for value in ("", "-1", "1.5")),
    *(("streams_per_address", value) for value in ("", "-1", "many")),
    *(("streams_per_token", value) for value in ("", "-1", "many")),
    *(("alert_window", value) for value in (*NO_NUMBER, "0")),
    *(
        ("callback_secret", value)
        for value in (KEY[6:], KEY[:-4], f"{KEY} x", "whsec_", f"{KEY}!", f"whsec_{'Y' * 88}")
    ),
    *(("callback_networks", value) for value in ("here", "10.0.0.1/8", "10.0.0.0/8,127.0.0.0/8", "::/129")),
    *(("horse", value) for value in ("", "Fork", "thread")),
    *(("require_tokens", value) for value in ("", "2", "maybe")),
    *(("allow_eviction", value) for value in ("", "2", "maybe")),
    *(("preload", value) for value in ("", "2", "maybe")),
    *(("max_tasks_per_horse", value) for value in ("", "-1", "1.5", "many", "1" * 10)),
    *(("max_horse_rss", value) for value in ("", "-1", "1.5G", "8 G", "8GB", "G")),
    *(
        (name, value)
        for name in ("beat", "lease", "grace", "sweep", "tombstone", "idempotency")
        for value in (*NO_NUMBER, "0")
    ),
    *(("drain", value) for value in NO_NUMBER),
    *(("health_port", value) for value in (*NO_NUMBER, "65536", "80.0")),
]

SECRET = ("alerts", "alert_webhook", "callback_secret")
"""Whoever knows these can use them, so a wrong one is not shown."""


def test_the_defaults_are_those_of_the_design() -> None:
    """A beat of 5 s and a lease of three beats; a sweep every second; a grace of 5 s."""
    assert Settings() == Settings.from_environment({})
    assert (5, 15, 5, 1) == (Settings().beat, Settings().lease, Settings().grace, Settings().sweep)


def test_every_setting_is_tried_here() -> None:
    """A new setting needs a good and a wrong value in this file."""
    names = {field.name for field in fields(Settings)}
    assert names == GOOD.keys() == {name for name, _ in WRONG}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_value_is_taken(name: str) -> None:
    """Each setting is read from GHOSTLESS_ and its name in capitals."""
    text, value = GOOD[name]
    environment = {f"GHOSTLESS_{name.upper()}": text, "OTHER": "x", "GHOSTLESS_LEASE": "1200"} | (
        {"GHOSTLESS_LEASE": text} if name == "lease" else {}
    )
    assert value == getattr(Settings.from_environment(environment), name)


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("1000", 1000), ("2K", 2048), ("500M", 500 << 20), ("1T", 1 << 40)]
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    """A size is a number of bytes, with a letter as in a systemd unit."""
    assert size == Settings.from_environment({"GHOSTLESS_MAX_HORSE_RSS": text}).max_horse_rss


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_value_is_named_with_what_was_expected(name: str, value: str) -> None:
    """`GHOSTLESS_X: expected ..., got ...`, as an error of ours that carries the three parts."""
    variable = f"GHOSTLESS_{name.upper()}"
    with pytest.raises(InvalidSetting) as caught:
        Settings.from_environment({variable: value})
    error = caught.value
    told = "something else" if name in SECRET else value
    assert (variable, told) == (error.name, error.got)
    assert f"{variable}: expected {error.expected}, got {told!r}" == str(error)
    assert isinstance(error, GhostlessError)


def test_a_lease_shorter_than_two_beats_is_refused() -> None:
    """One lost beat must not look like a death, whichever of the two was set."""
    for environment in ({"GHOSTLESS_LEASE": "9"}, {"GHOSTLESS_BEAT": "8"}):
        with pytest.raises(InvalidSetting, match="GHOSTLESS_LEASE: expected at least two beats"):
            Settings.from_environment(environment)
    assert 10 == Settings.from_environment({"GHOSTLESS_LEASE": "10"}).lease


def test_a_password_is_not_shown() -> None:
    """An address that cannot be used is told without its password."""
    with pytest.raises(InvalidSetting) as caught:
        Settings.from_environment({"GHOSTLESS_REDIS_URL": "redis://ann:hunter2@host:port"})
    assert "hunter2" not in str(caught.value)
    assert "redis://ann:***@host:port" == caught.value.got


def test_settings_cannot_be_changed() -> None:
    """One frozen object is passed around."""
    with pytest.raises(FrozenInstanceError):
        Settings().beat = 1  # type: ignore[misc]


def test_an_id_stays_taken_for_a_week() -> None:
    """So long it is told what became of a purged task."""
    assert 7 * 24 * 3600 == Settings().tombstone
