"""What a pool hands on of its command line to its workers."""

from typing import Any

import pytest
from click.testing import CliRunner
from ghostless.jobs.cli import main
from ghostless.jobs.cli import worker as verb
from ghostless.jobs.pool import Place
from ghostless.jobs.settings import Settings
from redis import Redis


def test_workers_get_what_was_typed_but_what_is_the_pools_own(
    settings: Settings, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option once, whatever way it was typed; the environment reaches them by itself."""
    asked: dict[str, Any] = {}

    def run_pool(_settings: Settings, name: str, places: list[Place], arguments: list[str], *, burst: bool) -> int:
        asked.update(name=name, places=[place.name for place in places], arguments=arguments, burst=burst)
        return 0

    monkeypatch.setattr(verb, "run_pool", run_pool)
    monkeypatch.setenv("GHOSTLESS_DRAIN", "7")
    words = ["--redis-url", settings.redis_url, "worker", "-n2", "--name=box", "one", "--tasks", "a", "--tasks=b"]
    result = CliRunner().invoke(main, [*words, "--health-port", "9000", "--burst", "--max-jobs", "3", "two"])
    assert 0 == result.exit_code, result.output
    options = ["--tasks", "a", "--tasks", "b", "--burst", "--max-jobs", "3"]
    assert ("box", ["box-1", "box-2"], True) == (asked["name"], asked["places"], asked["burst"])
    assert ["--redis-url", settings.redis_url, "worker", *options, "--", "one", "two"] == asked["arguments"]
