"""How events are usually sent from Flask, to compare with: a Redis connection for each client, as flask-sse does.

`gunicorn --worker-class gevent 'ghostless.benchmarks.naive_events:create_app()'` serves it.
"""

import os
from collections.abc import Iterator
from typing import Any, cast

from flask import Flask, Response
from redis import Redis

CHANNEL = "news"


def create_app() -> Flask:
    """Return the application."""
    app = Flask(__name__)
    redis = Redis.from_url(os.environ["GHOSTLESS_REDIS_URL"], max_connections=10_000)  # its own limit is 100

    @app.get("/events")
    def stream() -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response(events(redis), mimetype="text/event-stream")

    return app


def events(redis: Redis) -> Iterator[bytes]:
    """Yield what is said on the channel from now on."""
    with redis.pubsub() as pubsub:
        pubsub.subscribe(CHANNEL)
        for message in cast("Iterator[dict[str, Any]]", pubsub.listen()):
            yield message["data"] if message["type"] == "message" else b": subscribed\n\n"
