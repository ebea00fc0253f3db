"""Where callbacks may go, by URL and by address."""

import socket
from ipaddress import ip_network
from typing import Any

import pytest
from ghostless.jobs.receivers import Receiver, ReceiverRefused, fault, look_up

HOME = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    ("url", "place", "target"),
    [
        ("https://example.com", "https://example.com", "/"),
        ("https://Example.com:443/a/b?c=d#e", "https://example.com", "/a/b?c=d"),
        ("https://hooks.example.com:8443?x", "https://hooks.example.com:8443", "/?x"),
        ("https://[2606:2800:220:1::1]/x", "https://[2606:2800:220:1::1]", "/x"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example", "/"),
    ],
)
def test_a_url_is_read_into_what_is_asked_and_what_is_shown(url: str, place: str, target: str) -> None:
    """Of the URL only scheme, host and port are shown."""
    assert "" == fault(url, ())
    receiver = Receiver.parse(url)
    assert (place, target) == (receiver.place, receiver.target)


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "//example.com/", "https://", "https:///path", "ftp://example.com", "file:///etc/passwd"),
        *(
            "https://user@example.com/",
            "https://a:b@example.com/",
            "https://example.com@10.0.0.1/",
            "https://@x.example",
        ),
        *("https://example.com:0/", "https://example.com:99999/", "https://example.com:x/", "https://example.com:-1"),
        *(
            "https://exa mple.com/",
            "https://example.com/\r\nX: y",
            "https://example.com/\x00",
            "https://bücher.example",
        ),
        *("https://example.com\\@10.0.0.1/", "https://[::1", "https://[fe80::1%25eth0]/", "https://a/" + "x" * 2048),
        *("https://exa%6dple.com/", "https://a,b.example/", "HTTPS://example.com/", 7, None, b"https://example.com/"),
        *("http://example.com/", "https://example.com:22/", "https://example.com:80/"),
    ],
)
def test_a_url_that_cannot_be_a_receiver_is_refused(url: object) -> None:
    """Nothing but a host that is reached by HTTPS on its ports, and no other reading of it."""
    assert fault(url, ()).startswith("expected ")


@pytest.mark.parametrize("url", ["http://127.0.0.1:5000/x", "https://localhost:9000"])
def test_networks_of_ones_own_open_other_ports_and_plain_http(url: str) -> None:
    """Whether the address is theirs is for the look-up to tell."""
    assert "GHOSTLESS_CALLBACK_NETWORKS" in fault(url, ())
    assert "" == fault(url, HOME)


@pytest.mark.parametrize("host", ["10.0.0.1", "0x7f.1", "169.254.169.254", "[fd00:ec2::254]", "[::ffff:10.0.0.1]"])
@pytest.mark.parametrize("networks", [(), (ip_network("10.20.0.0/16"),)], ids=["none", "others"])
def test_an_address_to_which_no_callback_may_go_is_refused_at_once(host: str, networks: Any) -> None:
    """Nobody is to wait a day for what can never be delivered; of a name the look-up tells."""
    assert "GHOSTLESS_CALLBACK_NETWORKS" in fault(f"https://{host}/x", networks)
    assert "" == fault("https://nowhere.invalid/", networks)
    assert "" == fault(f"https://{PUBLIC}/", networks)


def test_plain_http_goes_to_networks_of_ones_own_only() -> None:
    """A public address is reached by HTTPS, whatever networks are one's own."""
    assert "GHOSTLESS_CALLBACK_NETWORKS" in fault(f"http://{PUBLIC}/", HOME)


NOT_PUBLIC = [
    *("127.0.0.1", "127.8.9.1", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1"),
    *(
        "168.63.129.16",
        "::ffff:168.63.129.16",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.254",
        "192.0.0.8",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
    ),
    *("198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "fe80::1"),
    *("fe80::1%1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::", "2001::1", "2001:20::1", "2001:db8::1", "3fff::1"),
    *("100::1", "5f00::1", "::ffff:0:127.0.0.1"),
]
"""Loopback, private, link-local, shared, reserved, documentation, multicast; and what wraps IPv4."""


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let every name lead to these addresses."""

    def found(_host: str, port: int, **_options: Any) -> list[tuple[Any, ...]]:
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_a_name_that_leads_to_what_is_not_public_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Also when a public address stands before it, or behind it; and what it leads to is not told."""
    for found in ([address], [PUBLIC, address], [address, PUBLIC]):
        resolving(monkeypatch, *found)
        with pytest.raises(ReceiverRefused) as caught:
            look_up(Receiver.parse("https://example.com/"), HOME if address == "10.0.0.1" else ())
        assert address not in str(caught.value)
        assert "GHOSTLESS_CALLBACK_NETWORKS" in str(caught.value)


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "::ffff:8.8.8.8", "2606:2800:220:1::1", "2a00:1450:4001::1"])
def test_a_public_address_is_open_by_https_on_its_ports_only(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Networks of one's own open nothing else."""
    resolving(monkeypatch, address)
    for port in (443, 8443):
        [(*_, place)] = look_up(Receiver.parse(f"https://example.com:{port}/"), HOME)
        assert (address, port) == place
    for url in ("http://example.com/", "http://example.com:443/", "https://example.com:6379/"):
        with pytest.raises(ReceiverRefused):
            look_up(Receiver.parse(url), HOME)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "0", "[::1]"]
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_spelling_of_the_loopback_is_a_way_to_it(host: str, scheme: str) -> None:
    """What the system takes for an address is looked at as one; networks of one's own are reached all the same."""
    receiver = Receiver.parse(f"{scheme}://{host}:8443/")
    with pytest.raises(ReceiverRefused):
        look_up(receiver, ())
    if host != "0":  # which is 0.0.0.0
        assert look_up(receiver, HOME)


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "x" * 64 + ".example", "."])
def test_a_name_that_is_not_found(host: str) -> None:
    """An OSError, whatever is wrong with it."""
    with pytest.raises(OSError, match=".") as caught:
        look_up(Receiver.parse(f"https://{host}/"), ())
    assert not isinstance(caught.value, ReceiverRefused)
