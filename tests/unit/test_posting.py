"""One POST to a receiver on the loopback, whatever that does: in bounded time, and to where it was told to go."""

import http.client
import socket
import ssl
import threading
import time
from ipaddress import ip_network

import pytest
from ghostless.jobs import posting
from ghostless.jobs.posting import NotPosted, Poster, Reply
from ghostless.jobs.receivers import Receiver, ReceiverRefused
from helpers import eventually, expect
from odd_receivers import (
    CERTIFICATE,
    OK,
    Act,
    acting,
    answers,
    by_tls,
    drips,
    floods,
    is_silent,
    speaks_first,
    whole_request,
)
from receiver import receiving

HOME = (ip_network("127.0.0.0/8"),)
SHORT = 0.5


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A POST may take half a second."""
    monkeypatch.setattr(posting, "SECONDS", SHORT)


def post(url: str, poster: Poster | None = None) -> Reply:
    """Send something."""
    return (poster or Poster(HOME)).post(Receiver.parse(url), b'{"text": "here"}', {"Content-Type": "application/json"})


@pytest.mark.parametrize("status", [200, 204, 302, 404, 410, 500])
def test_the_status_is_told_and_no_redirect_is_followed(status: int) -> None:
    """The receiver gets the body once, whatever it answers."""
    with receiving() as receiver:
        receiver.answers = [status]
        assert Reply(status) == post(f"{receiver.url}hook?a=b")
        assert ["here"] == receiver.texts


def test_the_host_is_named_as_in_the_url() -> None:
    """Although it is the address that was checked which is connected to."""
    heard: list[bytes] = []

    def act(client: socket.socket) -> None:
        heard.append(whole_request(client))
        client.sendall(OK)

    with acting(act) as port:
        assert 204 == post(f"http://localhost:{port}/hook?a=b").status
    head = heard[0].split(b"\r\n")
    assert b"POST /hook?a=b HTTP/1.1" == head[0]
    assert f"Host: localhost:{port}".encode() in head
    assert b"Connection: close" in head


def test_the_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that leads elsewhere the second time, to what was not checked, gains nothing by it."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def changing(host: str, port: int, *rest: object, **options: object) -> object:
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", port, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    with receiving() as receiver:
        assert 200 == post(receiver.url.replace("127.0.0.1", "example.com")).status
    assert ["example.com"] == asked


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    with receiving() as receiver:
        assert 200 == post(receiver.url).status


@pytest.mark.parametrize(
    ("said", "asked"), [("120", 120_000), ("0", 0), ("-1", 0), ("soon", 0), ("1e9", 0), ("9" * 30, 0)]
)
def test_when_to_come_again_is_taken_from_the_answer(said: str, asked: int) -> None:
    """As a number of seconds; anything else counts as not said."""
    with acting(answers(f"HTTP/1.1 429 No\r\nRetry-After: {said}\r\n\r\n".encode())) as port:
        assert Reply(429, asked) == post(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "act",
    [
        is_silent,
        drips(b""),
        drips(b"HTTP/1.1 20"),
        drips(b"HTTP/1.1 200 OK\r\nX-Long: "),
        drips(b"HTTP/1.1 100 Continue\r\n\r\n"),
        answers(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 40, pause=0.05),
    ],
)
def test_a_receiver_that_never_comes_to_an_end_is_left(act: Act) -> None:
    """After the time there is for all of it, be there ever so many bytes."""
    began = time.monotonic()
    with acting(act) as port, pytest.raises(NotPosted, match=r"did not answer within 0\.5 s"):
        post(f"http://127.0.0.1:{port}/")
    assert time.monotonic() - began < SHORT + 3


@pytest.mark.parametrize("act", [floods, drips(b"HTTP/1.1 200 OK\r\n\r\n")])
def test_an_answer_is_not_read_beyond_its_head(act: Act) -> None:
    """However long it is, or slow, its status holds."""
    with acting(act) as port:
        assert 200 == post(f"http://127.0.0.1:{port}/").status


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (answers(b"s3cret\r\n\r\n"), "what is no HTTP"),
        (answers(b"HTTP/1.1 s3cret\r\n\r\n"), "what is no HTTP"),
        (answers(b"HTTP/1.1 200 OK\r\n" + b"X: s3cret\r\n" * 200 + b"\r\n"), "what is no HTTP"),
        (answers(b"HTTP/1.1 200 " + b"s" * (1 << 17)), "what is no HTTP"),
        (answers(), "the connection was lost"),
    ],
)
def test_what_is_no_answer_is_told_without_what_was_sent(act: Act, told: str) -> None:
    """In words of our own."""
    with acting(act) as port, pytest.raises(NotPosted, match=told) as caught:
        post(f"http://127.0.0.1:{port}/")
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_receiver_that_is_not_there() -> None:
    """Nobody listens, or the name is none."""
    with pytest.raises(NotPosted, match="was refused"):
        post("http://127.0.0.1:1/")
    with pytest.raises(NotPosted, match="was not found"):
        post("http://nowhere.invalid/")


def test_what_may_not_be_reached_is_not_connected_to() -> None:
    """The loopback, unless it is named as a network of one's own; by no redirect either."""
    came: list[bool] = []
    with acting(lambda _client: came.append(True)) as port:
        with pytest.raises(ReceiverRefused):
            post(f"https://localhost:{port}/", Poster(()))
        with acting(answers(f"HTTP/1.1 307 No\r\nLocation: http://127.0.0.1:{port}/\r\n\r\n".encode())) as first:
            assert 307 == post(f"http://127.0.0.1:{first}/").status
    assert [] == came


def test_tls_is_checked_against_the_name_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate of a known issuer for that name is taken; one of another name, or of nobody, is not."""
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    with acting(by_tls(answers(OK))) as port:
        with pytest.raises(NotPosted, match="certificate is not valid"):
            post(f"https://localhost:{port}/")
        monkeypatch.setattr(ssl, "create_default_context", lambda: trusting)
        assert 204 == post(f"https://localhost:{port}/").status
        with pytest.raises(NotPosted, match="certificate is not valid"):
            post(f"https://127.0.0.1:{port}/")
    with acting(speaks_first) as port, pytest.raises(NotPosted, match="TLS could not be agreed on"):
        post(f"https://localhost:{port}/")


@pytest.mark.parametrize("act", [is_silent, drips(b"\x16")])
def test_a_handshake_that_never_ends_is_left(act: Act) -> None:
    """It counts as part of the POST."""
    with acting(act) as port, pytest.raises(NotPosted, match=r"within 0\.5 s|TLS could not"):
        post(f"https://localhost:{port}/")


def test_nothing_is_left_of_a_post() -> None:
    """No thread, after good ones and bad ones."""
    before = threading.active_count()
    with receiving() as receiver:
        for _ in range(3):
            post(receiver.url)
    eventually(lambda: expect(threading.active_count() <= before))


def test_the_clients_defaults_are_what_is_relied_on() -> None:
    """The standard library's client formats the Host of an IPv6 address, and leaves out the port of the scheme."""
    connection = http.client.HTTPSConnection("::1", 443)
    client, server = socket.socketpair()
    connection.sock = client
    connection.request("POST", "/", b"")
    assert b"Host: [::1]\r\n" in server.recv(1 << 16)
    client.close()
    server.close()


def test_a_look_up_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can break it off: it is left alone, so that it keeps no other delivery from its place."""
    answered = threading.Event()
    monkeypatch.setattr(posting, "SECONDS", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(10) and [])
    try:
        with pytest.raises(NotPosted, match="did not answer within"):
            post("https://hangs.example/")
        assert not answered.is_set()
    finally:
        answered.set()
