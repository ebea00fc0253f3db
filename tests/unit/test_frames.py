"""Frames over a real socket pair."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from ghostless.jobs.frames import FRAME_LIMIT, Channel, FrameError
from hypothesis import given
from hypothesis import strategies as st

Pair = tuple[Channel, Channel]
Raw = tuple[socket.socket, Channel]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two channels that are connected."""
    channels = [Channel(end) for end in socket.socketpair()]
    yield channels[0], channels[1]
    for channel in channels:
        channel.close()


@pytest.fixture
def raw() -> Iterator[Raw]:
    """A plain socket, connected to a channel."""
    end, other = socket.socketpair()
    channel = Channel(other)
    yield end, channel
    end.close()
    channel.close()


def packed(body: bytes) -> bytes:
    """Return a frame of any body."""
    return struct.pack(">I", len(body)) + body


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda part: st.lists(part), max_leaves=5))
def test_what_is_sent_is_received(value: object) -> None:
    """A frame arrives as it was sent, whatever text is in it."""
    ours, theirs = (Channel(end) for end in socket.socketpair())
    try:
        ours.send({"kind": "x", "value": value})
        assert theirs.receive() == {"kind": "x", "value": value}
    finally:
        ours.close()
        theirs.close()


def test_half_of_a_surrogate_pair_passes(pair: Pair) -> None:
    """Text that has no UTF-8 form does not stop a frame; whoever reads the value decides about it."""
    pair[0].send({"value": "\ud800"})
    assert pair[1].receive() == {"value": "\ud800"}


def test_frames_arrive_in_any_pieces(raw: Raw) -> None:
    """A frame is received once its last byte is there, and not before."""
    end, channel = raw
    data = packed(b'{"kind": "x"}')
    for number in range(len(data)):
        assert channel.receive_ready() == []
        end.sendall(data[number : number + 1])
    assert channel.receive_ready() == [{"kind": "x"}]


def test_several_frames_are_received_together(pair: Pair) -> None:
    """All frames that are complete are received at once, in their order."""
    for number in range(5):
        pair[0].send({"number": number})
    assert [frame["number"] for frame in pair[1].receive_ready()] == [0, 1, 2, 3, 4]
    assert not pair[1].is_ended


def test_frames_of_both_kinds_of_receive(pair: Pair) -> None:
    """What one way of receiving has buffered, the other one finds."""
    for number in range(3):
        pair[0].send({"number": number})
    assert pair[1].receive() == {"number": 0}
    assert pair[1].receive_ready() == [{"number": 1}, {"number": 2}]


def test_the_end_is_seen(pair: Pair) -> None:
    """When the other end is closed, what it sent is received first, and then the end."""
    pair[0].send({"kind": "last"})
    pair[0].close()
    assert pair[1].receive_ready() == [{"kind": "last"}]
    assert pair[1].is_ended
    assert pair[1].receive() is None
    assert pair[1].receive_ready() == []


def test_an_end_with_something_unread_is_an_end(pair: Pair) -> None:
    """A process that dies before it has read everything ends the channel like any other."""
    pair[1].send({"kind": "unread"})
    pair[0].close()
    assert pair[1].receive() is None
    assert pair[1].is_ended


def test_an_end_inside_a_frame_is_an_end(raw: Raw) -> None:
    """A frame whose sender died half-way is dropped."""
    end, channel = raw
    end.sendall(packed(b'{"kind": "x"}')[:-1])
    end.close()
    assert channel.receive() is None


@pytest.mark.parametrize("body", [b"", b"[1]", b"nothing", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_frame_is_an_error(raw: Raw, body: bytes) -> None:
    """Garbage is an error that shows its beginning."""
    end, channel = raw
    end.sendall(packed(body))
    with pytest.raises(FrameError, match="received"):
        channel.receive()


def test_a_length_over_the_limit_is_an_error(raw: Raw) -> None:
    """A length over the limit is refused before anything of that size is stored."""
    end, channel = raw
    end.sendall(struct.pack(">I", FRAME_LIMIT + 1))
    with pytest.raises(FrameError, match=f"{FRAME_LIMIT + 1} bytes"):
        channel.receive_ready()


@pytest.mark.parametrize("value", ["x" * FRAME_LIMIT, float("nan"), {1, 2}, object()])
def test_what_cannot_be_sent_is_refused_whole(pair: Pair, value: object) -> None:
    """A frame that is too large or not JSON is an error, and leaves the channel as it was."""
    with pytest.raises(FrameError):
        pair[0].send({"kind": "x", "value": value})
    pair[0].send({"kind": "next"})
    assert pair[1].receive() == {"kind": "next"}


def test_threads_send_whole_frames(pair: Pair) -> None:
    """Frames of several threads never mix, also when each is larger than the socket's buffer."""
    text = "x" * 500_000
    threads = [
        threading.Thread(target=lambda name=name: [pair[0].send({"from": name, "text": text}) for _ in range(10)])
        for name in range(4)
    ]
    for thread in threads:
        thread.start()
    frames = [pair[1].receive() for _ in range(40)]
    for thread in threads:
        thread.join()
    assert all(frame and frame["text"] == text for frame in frames)


def test_a_frame_sent_in_part_ends_the_channel(pair: Pair) -> None:
    """After a send that was given up half-way nothing more is sent, and the other end sees the end."""
    with socket.socket(fileno=pair[0].fileno()) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50_000))
        same.detach()
    with pytest.raises(BlockingIOError):
        pair[0].send({"text": "x" * 4_000_000})
    with pytest.raises(BrokenPipeError):
        pair[0].send({"kind": "next"})
    assert pair[1].receive() is None


def test_sending_to_nobody_is_an_error(pair: Pair) -> None:
    """When the other end is closed, sending says so."""
    pair[1].close()
    with pytest.raises(BrokenPipeError):
        pair[0].send({"kind": "x"})
