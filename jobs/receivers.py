"""Where callbacks may go: what a URL must be like, and which addresses are the business of nobody's callback.

Whoever submits tasks names a URL that one of our processes will ask. It must not reach by that what only our own
network reaches: a database, another service's port, the metadata of a cloud.
"""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from .errors import GhostlessError
from .values import shown

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

URL_LIMIT: Final = 2048
"""Most characters of a callback's URL."""

PORTS: Final = {"https": 443, "http": 80}
"""The ports of the schemes, where a URL names none."""

PUBLIC_PORTS: Final = frozenset({443, 8443})
"""Ports of public addresses to which callbacks go."""

SETTING: Final = "GHOSTLESS_CALLBACK_NETWORKS"
"""Says where callbacks may go beside public addresses."""

# Public by their form, and yet answered inside a cloud only, by the machine below: metadata, and keys with it.
# https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
_METADATA: Final[tuple[Network, ...]] = (
    ip_network("168.63.129.16/32"),  # Azure; those of other clouds are link-local, of carriers, or private
)

# What `ipaddress` of every Python we run on does not count as private yet, or not in all of its forms.
_CLOSED: Final[tuple[Network, ...]] = tuple(
    ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments
        "192.88.99.0/24",  # the relays of 6to4
        "2001::/23",  # protocol assignments, with Teredo, which wraps IPv4
        "2002::/16",  # 6to4, which wraps IPv4
        "3fff::/20",  # documentation
    )
)

_UNICAST: Final = ip_network("2000::/3")
"""What is given out of IPv6; the rest is for other purposes, as that of NAT64, which wraps IPv4, or for later."""

_HOST = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45}")  # a name, or what stood in the brackets of an IPv6 address


class ReceiverRefused(GhostlessError):
    """A callback's receiver is where no callback may go. The address is not told, as it may be nobody's to know."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """The receiver of a callback, from its URL."""

    scheme: str
    host: str
    port: int
    target: str  # path and query

    @classmethod
    def parse(cls, url: str) -> "Receiver":
        """Read a URL. Raises ValueError with what a URL must be."""
        if not re.fullmatch(r"https?://[!-~]+", url) or "\\" in url or len(url) > URL_LIMIT:
            raise ValueError(f"at most {URL_LIMIT} characters of printable ASCII that begin with https://")
        parts = urlsplit(url)
        port = PORTS[parts.scheme] if parts.port is None else parts.port
        if not _HOST.fullmatch(parts.hostname or "") or "@" in parts.netloc or not port:
            raise ValueError("a host, perhaps with a port, and no user or password")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme, parts.hostname or "", port, target)

    @property
    def place(self) -> str:
        """What may be shown of it: whoever knows the whole URL can use it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port != PORTS[self.scheme] else "")


def fault(url: object, networks: Sequence[Network]) -> str:
    """Return what is wrong with the URL of a callback, in words; "" when nothing is that can be told from it alone."""
    try:
        if not isinstance(url, str):
            raise ValueError("text")
        receiver = Receiver.parse(url)
    except ValueError as error:
        return f"expected a URL: {error}, got {shown(url)}"
    if not networks and (receiver.scheme != "https" or receiver.port not in PUBLIC_PORTS):
        return f"expected https:// on port 443 or 8443, got {receiver.place}; see {SETTING}"
    try:
        look_up(receiver, networks, flags=socket.AI_NUMERICHOST)
    except ReceiverRefused:
        return f"expected a public address, by https:// on port 443 or 8443, got {receiver.place}; see {SETTING}"
    except OSError:
        pass  # a name: where it leads is looked at when it is connected to
    return ""


def look_up(receiver: Receiver, networks: Sequence[Network], flags: int = 0) -> list[tuple[Any, ...]]:
    """Return the addresses of a receiver, as `socket.getaddrinfo` does, when callbacks may go to every one of them.

    What is connected to must be one of these, and not the name: a second look-up may find something else. `flags` are
    those of `getaddrinfo`. Raises ReceiverRefused, and OSError when the name is not found.
    """
    try:
        places = socket.getaddrinfo(receiver.host, receiver.port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:  # a part of the name is empty, or too long
        raise socket.gaierror(str(error)) from error
    if not all(_is_open(receiver, ip_address(place[0]), networks) for *_, place in places):
        raise ReceiverRefused(f"its address, scheme or port is one to which no callback may go; see {SETTING}")
    return [*places]


def _is_open(receiver: Receiver, address: Address, networks: Sequence[Network]) -> bool:
    """Tell whether callbacks may go there: to networks of one's own as one likes, else to what is public, by HTTPS."""
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    plain = inner or address
    if any(plain in network for network in networks):
        return True
    return receiver.scheme == "https" and receiver.port in PUBLIC_PORTS and _is_public(plain)


def _is_public(address: Address) -> bool:
    # Global is no private, loopback, link-local, or carrier's address.
    is_unicast = address in _UNICAST if isinstance(address, IPv6Address) else not address.is_multicast
    return address.is_global and is_unicast and not any(address in network for network in (*_CLOSED, *_METADATA))
