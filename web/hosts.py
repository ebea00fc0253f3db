"""The names under which a browser may reach a server that serves this machine only."""

import ipaddress
import re

_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9.-]+))(?::[0-9]{0,5})?", re.IGNORECASE | re.ASCII)


def is_local(host: str) -> bool:
    """Tell whether a Host header, with or without a port, names this machine and can name no other one.

    Any other name can be made to lead here (DNS rebinding), and its pages then count as pages of this server.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    return is_loopback(match["six"]) if match["six"] else _is_local_name(match["name"].lower().removesuffix("."))


def _is_local_name(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost") or is_loopback(name)


def serves_only_here(address: str) -> bool:
    """Tell whether who listens on this address is reached from this machine only."""
    return address == "localhost" or is_loopback(address)


def is_loopback(address: str) -> bool:
    """Tell whether this is an IP address that leads to this machine only."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
