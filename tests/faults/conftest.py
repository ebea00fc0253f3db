"""The fixtures of the acceptance tests, for faults that need real processes and a Redis of the test's own."""

from acceptance.conftest import client, end, fleet, pytest_runtest_makereport, rq_redis, server, serving, trace

__all__ = ["client", "end", "fleet", "pytest_runtest_makereport", "rq_redis", "server", "serving", "trace"]
