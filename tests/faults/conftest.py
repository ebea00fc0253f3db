"""The fleet of the acceptance tests, for tests of faults."""

from acceptance.conftest import (  # noqa: F401
    client,
    end,
    fleet,
    pytest_runtest_makereport,
    rq_redis,
    server,
    serving,
    trace,
)
