"""The fixtures of the acceptance tests, for faults that need real processes and a Redis of the test's own."""

from collections.abc import Iterator

import pytest
from acceptance.conftest import client, end, fleet, pytest_runtest_makereport, rq_redis, server, serving, trace
from looks import ends_with_the_audit

__all__ = ["client", "end", "fleet", "pytest_runtest_makereport", "rq_redis", "server", "serving", "trace"]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Fail a test of this folder that does not end with the audit."""
    with ends_with_the_audit() as fleets:
        outcome = yield
        fleets += [pyfuncitem.funcargs["fleet"]] if "fleet" in pyfuncitem.funcargs else []
    return outcome
