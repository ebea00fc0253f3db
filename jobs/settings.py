"""All settings: one frozen object, filled from the environment, with its defaults in sight."""

import base64
import binascii
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any
from urllib.parse import urlsplit

from .errors import InvalidSetting

LAST_PORT = 65_535
"""The highest port there is."""

PATIENCE_GRACES = 3
"""Graces that a worker has, and a lease, to end an attempt beyond its deadline, before others step in."""

LEASES_OVER_HTTP = 4
"""Leases for which a worker over HTTP keeps its task: it also has to sit out that a web server is replaced."""

HAND_OVER_BEATS = 2
"""Beats that a task may be without a ticket: a stock rq worker takes it some time before it starts the task."""

WAYS_TO_START = ("spawn", "fork")
"""How a horse starts: as a fresh interpreter, or forked from a process that has imported the modules."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How this process runs. Each field is read from GHOSTLESS_<NAME>; times are seconds."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    prefix: str = "ghostless:"
    tasks: tuple[str, ...] = ()  # modules with handlers, comma-separated
    handlers: tuple[str, ...] = ()  # modules with handlers of history entries (`@on`), comma-separated
    artifacts: str = "ghostless-artifacts"  # folder for what handlers produce
    horse: str = "spawn"  # or "fork": how the process of the handlers starts
    preload: bool = False  # whether a horse runs the setup of every task type before its first task
    max_tasks_per_horse: int = 0  # after so many tasks a horse is replaced; 0: never for that
    max_horse_rss: int = 0  # bytes of memory above which a horse is replaced after its task; 0: never for that
    beat: float = 5.0  # how often a worker renews its lease
    lease: float = 15.0  # how long a silent worker keeps its task
    grace: float = 5.0  # between asking a handler to stop and killing it
    drain: float = 30.0  # how long a stopping worker lets its task run on
    health_port: int = 0  # where a worker answers for its health; 0 for nowhere
    archive_to: str = ""  # folder to which the watchdog writes each task before it is purged; "": nowhere
    sweep: float = 1.0  # pause between two rounds of the watchdog
    tombstone: float = 604_800.0  # how long the id of a purged task stays taken
    idempotency: float = 86_400.0  # how long an idempotency key is remembered
    streams_per_address: int = 1000  # streams and long polls that one address may hold in one server process
    streams_per_token: int = 200  # the same for one token
    alerts: tuple[str, ...] = ()  # addresses of Apprise, separated by blanks
    alert_webhook: str = ""  # where alerts are sent as a POST of JSON
    alert_timeouts: int = 10  # more events TIMEOUT than this within the window are an alert
    alert_window: float = 300.0  # in which they are counted, and after which there may be another alert
    callback_secret: tuple[str, ...] = ()  # secrets that callbacks are signed with, the newest first
    callback_networks: tuple[IPv4Network | IPv6Network, ...] = ()  # of one's own, to which callbacks may go as well
    require_tokens: bool = False  # whether the web server lets nobody in without a token, on this machine neither
    allow_eviction: bool = False  # whether to start on a Redis that evicts keys when its memory is short

    @property
    def longest_gap(self) -> float:
        """Seconds without a sweep that are no sign of an outage.

        A worker that Redis kept waiting for so long still renews its lease in time.
        """
        return (self.lease - self.beat) / 2

    @property
    def http_lease(self) -> float:
        """Seconds for which a silent worker over HTTP keeps its task."""
        return LEASES_OVER_HTTP * self.lease

    @property
    def hand_over(self) -> float:
        """Seconds that a task may be without a ticket before it gets a new one."""
        return HAND_OVER_BEATS * self.beat

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """Read every setting that is given. Raises InvalidSetting for a value that cannot be used."""
        given: dict[str, Any] = {}
        for field in fields(cls):
            name = f"GHOSTLESS_{field.name.upper()}"
            if name in environment:
                given[field.name] = _PARSERS[field.name](name, environment[name])
        settings = cls(**given)
        if settings.lease < 2 * settings.beat:
            expected = f"at least two beats of {settings.beat} s, so that one lost beat is no death"
            raise InvalidSetting("GHOSTLESS_LEASE", expected, str(settings.lease))
        if settings.sweep > settings.longest_gap / 2:
            expected = f"at most {settings.longest_gap / 2:g} s, a quarter of what the lease is longer than the beat"
            raise InvalidSetting("GHOSTLESS_SWEEP", expected, str(settings.sweep))
        return settings


def _seconds(least: float, most: float) -> Callable[[str, str], float]:
    def parse(name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise InvalidSetting(name, f"a number of seconds from {least:g} to {most:g}", text)
        return value

    return parse


def _way_to_start(name: str, text: str) -> str:
    if text not in WAYS_TO_START:
        raise InvalidSetting(name, " or ".join(WAYS_TO_START), text)
    return text


def _flag(name: str, text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise InvalidSetting(name, f"one of {', '.join(_FLAGS)}", text)
    return _FLAGS[text.lower()]


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise InvalidSetting(name, "a whole number of at most 9 digits", text)
    return int(text)


def _size(name: str, text: str) -> int:
    size = re.fullmatch(r"([0-9]{1,18})([KMGT]?)", text.upper())
    if not size:
        raise InvalidSetting(name, "a number of bytes, or of KiB, MiB, GiB or TiB like 500M or 8G", text)
    return int(size[1]) * 1024 ** " KMGT".index(size[2] or " ")


def _port(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > LAST_PORT:
        raise InvalidSetting(name, f"a port from 1 to {LAST_PORT}, or 0 for none", text)
    return int(text)


def _redis_url(name: str, text: str) -> str:
    try:
        parts = urlsplit(text)
        is_tcp = text.startswith(("redis://", "rediss://")) and re.fullmatch(r"/?[0-9]*", parts.path) is not None
        is_usable = text.startswith("unix://") or (is_tcp and parts.port != 0)
    except ValueError:  # from a port that is none, or half an IPv6 address
        is_usable = False
    if not is_usable:
        without_password = re.sub(r"(//[^/@]*:)[^/@]*@", r"\1***@", text)
        raise InvalidSetting(name, "an address like redis://host:6379/0 or unix:///path", without_password)
    return text


def _prefix(name: str, text: str) -> str:
    if not text or len(text) > 64 or not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidSetting(name, "1 to 64 printable ASCII characters without blanks", text)
    return text


def _modules(name: str, text: str) -> tuple[str, ...]:
    modules = tuple(part.strip() for part in text.split(",") if part.strip())
    if not all(part.isidentifier() for module in modules for part in module.split(".")):
        raise InvalidSetting(name, "names of Python modules, separated by commas", text)
    return modules


def _addresses(name: str, text: str) -> tuple[str, ...]:
    addresses = tuple(text.split())
    if not all("://" in address for address in addresses):
        raise InvalidSetting(name, "addresses of Apprise like mailto://…, separated by blanks", _SECRET)
    return addresses


def _webhook(name: str, text: str) -> str:
    if text and not _is_http(text):
        raise InvalidSetting(name, "an address like https://host/path in ASCII, without user or password", _SECRET)
    return text


def _secrets(name: str, text: str) -> tuple[str, ...]:
    secrets = tuple(text.split())
    if not all(map(_is_secret, secrets)):
        raise InvalidSetting(name, "whsec_ and then 24 to 64 bytes in base64; several are separated by blanks", _SECRET)
    return secrets


def _is_secret(text: str) -> bool:
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        return False
    return text.startswith("whsec_") and 24 <= len(key) <= 64


def _networks(name: str, text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(part) for part in text.split())
    except ValueError as error:
        raise InvalidSetting(name, "networks like 10.20.0.0/16, separated by blanks", text) from error


def _is_http(text: str) -> bool:
    try:
        parts = urlsplit(text)
        has_place = bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:  # from a port that is none, or half an IPv6 address
        return False
    return has_place and re.fullmatch(r"https?://[!-~]+", text) is not None


def _folder(name: str, text: str) -> str:
    if not text.strip():
        raise InvalidSetting(name, "the path of a folder", text)
    return text


_SECRET = "something else"
"""Said of a secret, or an address, that is not shown, since whoever knows it can use it."""

_WEEK, _YEAR = 604_800.0, 31_536_000.0
_FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}

_PARSERS: Mapping[str, Callable[[str, str], Any]] = {
    "redis_url": _redis_url,
    "prefix": _prefix,
    "tasks": _modules,
    "handlers": _modules,
    "artifacts": _folder,
    "archive_to": _folder,
    "horse": _way_to_start,
    "preload": _flag,
    "max_tasks_per_horse": _count,
    "max_horse_rss": _size,
    "beat": _seconds(0.05, 600),
    "lease": _seconds(0.1, 3600),
    "grace": _seconds(0.1, 600),
    "drain": _seconds(0, _WEEK),
    "health_port": _port,
    "sweep": _seconds(0.05, 60),
    "tombstone": _seconds(1, _YEAR),
    "idempotency": _seconds(1, _YEAR),
    "streams_per_address": _count,
    "streams_per_token": _count,
    "alerts": _addresses,
    "alert_webhook": _webhook,
    "alert_timeouts": _count,
    "alert_window": _seconds(1, _WEEK),
    "callback_secret": _secrets,
    "callback_networks": _networks,
    "require_tokens": _flag,
    "allow_eviction": _flag,
}
