"""The Flask application. The queue knows nothing of it; it knows the queue through its client."""

from typing import cast

from flask import Flask
from flask.json.provider import DefaultJSONProvider
from werkzeug.middleware.proxy_fix import ProxyFix

from .jobs.client import Client
from .jobs.settings import Settings
from .web import (
    access,
    artifacts,
    bulk,
    confinement,
    cookies,
    deliveries,
    events,
    guards,
    health,
    metrics,
    openapi,
    overview,
    pages,
    problems,
    publishing,
    sessions,
    static_files,
    tasks,
    work,
)
from .web.desk import Desk
from .web.limits import Limits

ROUTES = (
    *(tasks, bulk, events, artifacts, deliveries, work, publishing, sessions, overview, health, metrics, openapi),
    *(static_files, pages),
)


def create_app(
    settings: Settings | None = None,
    client: Client | None = None,
    *,
    local_only: bool = True,
    require_tokens: bool | None = None,
    limits: Limits | None = None,
    proxies: int = 0,
) -> Flask:
    """Return the application. It connects to Redis with the first request, not before.

    It cannot know where it is served: so it answers only requests whose Host names this machine (localhost, 127.0.0.1,
    [::1]), unless `local_only=False` says that it is served under other names too. Then it demands a token of
    everybody, unless `require_tokens=False`; `require_tokens=True`, or the setting of that name, demands one here too.

    `limits` is what the server takes on, by default what fits into this process. Of `proxies` in front of it, each is
    believed what it appends to X-Forwarded-For and X-Forwarded-Proto.

    Raises InvalidSetting when the settings come from the environment and one cannot be used.
    """
    app = Flask(__name__, static_folder=None)
    cast(DefaultJSONProvider, app.json).sort_keys = False  # ids first, as written
    desk = Desk.over(client or Client(settings), limits)
    app.extensions["ghostless"] = desk
    if require_tokens is None:
        require_tokens = desk.client.settings.require_tokens or not local_only
    guards.install(app, local_only=local_only)
    problems.install(app)
    access.install(app, tokens_demanded=require_tokens)
    confinement.install(app)
    cookies.install(app)
    metrics.Traffic.install(app)
    for module in ROUTES:
        app.register_blueprint(module.routes)
    if proxies:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=proxies, x_proto=proxies)
    return app
