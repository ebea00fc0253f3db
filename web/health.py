"""Probes: whether this process is alive, and whether it can serve."""

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from .desk import desk
from .kinds import Kind
from .operations import operation
from .problems import Refusal
from .views import ProbeView

routes = Blueprint("health", __name__)


@routes.get("/healthz")
@operation(None, answers={200: ProbeView})
def healthz() -> ResponseReturnValue:
    """Answer 200 while this process is worth keeping; Redis being away is no reason to restart it."""
    here = desk()
    if not here.hub.alive:
        raise Refusal(Kind.HUB_DEAD, "the hub no longer follows the history; restart this process")
    if here.watchdog and not here.watchdog.is_alive():
        raise Refusal(Kind.WATCHDOG_DEAD, "the watchdog's thread ended; restart this process")
    return jsonify(status="alive")


@routes.get("/readyz")
@operation(None, answers={200: ProbeView})
def readyz() -> ResponseReturnValue:
    """Answer 200 while Redis answers."""
    desk().client.reads.ping()
    return jsonify(status="ready")
