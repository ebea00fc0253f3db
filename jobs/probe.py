"""Asking workers for their health: plain HTTP to the address in their record, briefly, trusting no answer."""

import ipaddress
import json
import socket
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, repeat
from urllib.parse import urlsplit

ANSWER_LIMIT = 1024
"""Bytes that are read of an answer, its head included."""

TEXT_LIMIT = 300
"""Characters that are told of it."""

MOST_ASKED = 32
"""Workers that are asked at once."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a worker answered, in words, and whether it called itself healthy."""

    text: str
    healthy: bool = False
    worker: str = ""  # who answered, if it was one


def ask_all(addresses: Mapping[str, str], patience: float) -> dict[str, str]:
    """Ask workers (name -> address) at once, and return what each answered; takes `patience` seconds at most.

    Of more than `MOST_ASKED` the first ones are asked.
    """
    names = list(islice(addresses, MOST_ASKED))
    with ThreadPoolExecutor(MOST_ASKED) as pool:
        findings: Iterable[Finding] = pool.map(ask, map(addresses.__getitem__, names), repeat(patience), names)
        return {name: finding.text for name, finding in zip(names, findings, strict=True)}


def ask(address: str, patience: float, worker: str | None = None) -> Finding:
    """Ask the worker at "IP:port" for its health within `patience` seconds; never raises.

    An answer of another worker than the one named is none.
    """
    place = _place(address)
    if place is None:
        return Finding(f"{_shown(address)} is no address like 10.0.0.5:9000")
    try:
        return _read(_get(place, patience), worker)
    except TimeoutError:
        return Finding(f"did not answer in {patience:g} s")
    except OSError as error:
        return Finding((error.strerror or str(error)).lower())


def _place(address: str) -> tuple[str, int] | None:
    """Return IP address and port; a name is not looked up, since that may take long and lead anywhere."""
    try:
        parts = urlsplit(f"//{address}")
        host, port = str(ipaddress.ip_address(parts.hostname or "")), parts.port
    except ValueError:
        return None
    return (host, port) if port and address in (f"{host}:{port}", f"[{host}]:{port}") else None


def _get(place: tuple[str, int], patience: float) -> bytes:
    """Return the start of the answer. Raises OSError."""
    until = time.monotonic() + patience
    with socket.create_connection(place, timeout=patience) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        answer = b""
        while len(answer) < ANSWER_LIMIT:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
            chunk = connection.recv(ANSWER_LIMIT - len(answer))
            if not chunk:
                break
            answer += chunk
    return answer


def _read(answer: bytes, worker: str | None) -> Finding:
    head, _, body = answer.decode(errors="replace").partition("\r\n\r\n")
    status = "".join(head.split(maxsplit=2)[1:2])
    try:
        report = json.loads(body)
        name, task = report["worker"], report["task"]
        told = "; ".join([report["state"] + (f" with {task}" if task else ""), *report["reasons"]])
    except (ValueError, KeyError, TypeError, RecursionError):
        return Finding(_shown(f"{status} {body or head}"))
    if worker and name != worker:
        return Finding(_shown(f"another worker answered, {name}"))
    return Finding(_shown(f"{status} {told}"), status == "200", _shown(str(name)))


def _shown(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable.strip()[:TEXT_LIMIT] or "an empty answer"
