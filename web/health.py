"""Probes: whether this process is alive, and whether it can serve."""

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from .desk import desk
from .problems import Refusal

routes = Blueprint("health", __name__)


@routes.get("/healthz")
def healthz() -> ResponseReturnValue:
    """Answer 200 while this process is worth keeping; Redis being away is no reason to restart it."""
    if not desk().hub.alive:
        raise Refusal(503, "hub-dead", "Not alive", "the hub no longer follows the history; restart this process")
    return jsonify(status="alive")


@routes.get("/readyz")
def readyz() -> ResponseReturnValue:
    """Answer 200 while Redis answers."""
    desk().client.reads.ping()
    return jsonify(status="ready")
