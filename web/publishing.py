"""The route by which workers over HTTP publish the task types that they serve."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from ..jobs.catalog import PublishedType
from ..jobs.errors import Fault, InvalidHandler
from ..jobs.foreign_schema import fault_of
from ..jobs.masking import exposed
from ..jobs.publishing import publish
from ..jobs.terms import policy_of
from .access import Scope
from .desk import desk
from .names import type_name
from .operations import operation
from .overview_views import TypeView
from .problems import pointer, wrong_body
from .work_models import TypeBody

routes = Blueprint("publishing", __name__, url_prefix="/api/types")


@routes.put("/<given_type>")
@operation(Scope.WORK, body=TypeBody, answers={200: TypeView})
def put(given_type: str, body: TypeBody) -> ResponseReturnValue:
    """Publish a task type, or change it: what is submitted of it from now on is checked by its schema.

    The schema is JSON Schema 2020-12, but for patterns, `uniqueItems` and references that lead out of `$defs`. What
    the type's schema keeps secret (`writeOnly`) must stay so.
    """
    name = type_name(given_type)
    fault = fault_of(body.params_schema) or _exposure(name, body.params_schema)
    if fault:
        raise wrong_body([(pointer(*fault.field.split(".")), fault.message)])
    try:
        policy = policy_of(name, body.terms())
    except InvalidHandler as error:  # terms that make no sense together
        raise wrong_body([("", str(error))]) from error
    kind = {
        "queue": body.queue, "policy": policy.pack(), "schema": body.params_schema, "description": body.description,
    }  # fmt: skip
    publish(desk().client.store, {name: kind})
    return jsonify(asdict(PublishedType.read(name, kind)))


def _exposure(name: str, schema: Mapping[str, Any]) -> Fault | None:
    """Return what a schema would show of a type that keeps it secret: clients go on to send it."""
    published = desk().client.types().get(name)
    shown = exposed(published.schema, schema) if published else []
    if not shown:
        return None
    names = ", ".join(shown)[:400]
    return Fault("schema", f"secret in the type as it is published, so mark it writeOnly here: {names}")
