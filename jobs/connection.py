"""Connections to Redis, made in one place with time-outs that fit what they are used for."""

import select
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from redis import Redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ResponseError, TimeoutError
from redis.retry import Retry

from .settings import Settings

REPLY_TIMEOUT = 5.0
"""Seconds to wait for a reply before the connection counts as broken."""

BLOCK = 2.0
"""Seconds that a blocking read waits in Redis; well under every socket time-out."""


def connect(settings: Settings, *, exact: bool = False) -> Redis:
    """Return a client for short commands, one pool a process.

    Every script is safe to repeat, so two quick retries are safe; longer outages are for the caller's loop.
    With `exact` bytes that are no text keep their identity: what was read can be sent again, though not printed.
    """
    options = _options() | ({"encoding_errors": "surrogateescape"} if exact else {})
    return Redis.from_url(settings.redis_url, **options)


def connect_like(other: Redis, name: str = "", on_connect: Callable[[], object] | None = None) -> Redis:
    """Return a client to the same database as `other`, whatever `other` was made with.

    Its connections bear the name, where Redis allows that, for those who look at CLIENT LIST. `on_connect` is called
    with each new one that has a name, by whichever thread makes it.
    """
    pool = other.connection_pool
    # Address, credentials and TLS are the other's. Its handlers of maintenance notices belong to RESP3.
    theirs = {name: value for name, value in pool.connection_kwargs.items() if "maint_notifications" not in name}
    options = {**theirs, **_options()}
    if name:
        options["redis_connect_func"] = _introduction(name, theirs.get("redis_connect_func"), on_connect)
    fresh = type(pool)(connection_class=pool.connection_class, **options)
    return Redis(connection_pool=fresh)


class _Dedicated(Redis):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.connection = self.connection or self.connection_pool.get_connection()
        return cast(Any, super().execute_command(*args, **options))


def dedicated(other: Redis) -> Redis:
    """Return a client for one thread that takes a connection of the other's when it first needs one, and keeps it.

    To ask the pool each time costs as much as a short command.
    """
    return _Dedicated(connection_pool=other.connection_pool)


def let_go(redis: Redis) -> None:
    """In a fork: close this process' copies of a client's sockets, without a word to Redis.

    Else Redis would not see the connections end with the process whose they are.
    """
    pool = redis.connection_pool
    # redis-py has no public way: in a fork `disconnect` of the pool only forgets the connections.
    theirs: list[Any] = [*pool._available_connections, *pool._in_use_connections]  # pyright: ignore[reportPrivateUsage]
    for connection in theirs:
        connection.disconnect()  # which shuts nothing down in a process that did not connect


def _introduction(
    name: str, prepare: Callable[[Any], None] | None, then: Callable[[], object] | None
) -> Callable[[Any], None]:
    """Return what is done with each new connection. redis-py's own `client_name` fails where names are forbidden."""

    def introduce(connection: Any) -> None:
        if prepare:
            prepare(connection)
        else:  # without a check, since a failing check connects again, which ends up here
            connection.on_connect_check_health(check_health=False)
        connection.send_command("CLIENT", "SETNAME", name, check_health=False)
        with suppress(ResponseError):
            connection.read_response()
        if then:
            then()

    return introduce


def pop_unless_woken(redis: Redis, names: Sequence[str], seconds: float, wake_fd: int) -> None:
    """Pop from the first of these lists that has something, as BLPOP does, but return when `wake_fd` is readable.

    What Redis pops for a caller that was woken is lost, so this is for hints. Raises RedisError.
    """
    pool = redis.connection_pool
    connection = redis.connection or pool.get_connection()
    try:
        connection.send_command("BLPOP", *names, seconds)
        # redis-py has no public way to wait for a reply and for something else.
        replies = cast(socket.socket, connection._sock)  # pyright: ignore[reportPrivateUsage]
        readable, _, _ = select.select([replies, wake_fd], [], [], seconds + REPLY_TIMEOUT)
        if replies in readable:
            connection.read_response()
        else:
            connection.disconnect()
        if not readable:
            raise TimeoutError("no reply to BLPOP")
    finally:
        if connection is not redis.connection:
            pool.release(connection)


def _options() -> dict[str, Any]:
    return {
        "decode_responses": True,
        "encoding_errors": "replace",
        "protocol": 2,  # the same reply shapes from every server and every version of redis-py
        "socket_timeout": REPLY_TIMEOUT,
        "socket_connect_timeout": REPLY_TIMEOUT,
        "health_check_interval": 30,
        "max_connections": 10_000,  # the default of 100 raises as soon as many requests wait at once
        "retry": Retry(ExponentialWithJitterBackoff(cap=0.2, base=0.02), 2),
    }
