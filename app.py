"""The Flask application. The queue knows nothing of it; it knows the queue through its client."""

from typing import cast

from flask import Flask
from flask.json.provider import DefaultJSONProvider

from .jobs.client import Client
from .jobs.settings import Settings
from .web import artifacts, events, guards, health, metrics, openapi, overview, pages, problems, static_files, tasks
from .web.desk import Desk


def create_app(settings: Settings | None = None, client: Client | None = None, *, local_only: bool = True) -> Flask:
    """Return the application. It connects to Redis with the first request, not before.

    It asks nobody who he is, and cannot know where it is served: so it answers only requests whose Host names this
    machine (localhost, 127.0.0.1, [::1]), unless `local_only=False` says that it is served under other names too.

    Raises InvalidSetting when the settings come from the environment and one cannot be used.
    """
    app = Flask(__name__, static_folder=None)
    cast(DefaultJSONProvider, app.json).sort_keys = False  # ids first, as written
    app.extensions["ghostless"] = Desk.over(client or Client(settings))
    guards.install(app, local_only=local_only)
    problems.install(app)
    metrics.Traffic.install(app)
    for module in (tasks, events, artifacts, overview, health, metrics, openapi, static_files, pages):
        app.register_blueprint(module.routes)
    return app
