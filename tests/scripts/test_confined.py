"""Params with secrets, kept twice; and submits of callers who may know of their own tasks only."""

import pytest
from audit import audit
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.messages import NothingToClaim
from ghostless.jobs.reads import Reads
from ghostless.jobs.whole import read_wholes
from ghostless.statemachine import State
from redis import Redis
from scripts.seeding import CLAIM, ID, Scene, claimed, make_outdated, put, scene, submission

SHOWN, WHOLE = '{"key":"***"}', '{"key":"s3cret"}'


@pytest.fixture
def stage(backend: Redis) -> Scene:
    """A task that waits, with a secret."""
    stage = scene(backend)
    stage.store.submit(submission(params_json=SHOWN, secrets_json=WHOLE))
    return stage


def test_the_worker_gets_the_secret_and_nobody_else(stage: Scene, backend: Redis) -> None:
    """Neither a look at the task, nor its archive, nor its history has it; a claim has, also a repeated one."""
    got = claimed(stage.store)
    assert {"key": "s3cret"} == got.params
    assert {"key": "s3cret"} == claimed(stage.store).params
    reads = Reads(backend, stage.keys)
    assert {"key": "***"} == reads.task(ID).params
    wholes, _ = read_wholes(reads, [ID])
    assert "s3cret" not in wholes[0].to_line(0)
    assert "s3cret" not in str(backend.xrange(stage.keys.history))
    assert [] == audit(backend, stage.keys, [ID])
    assert [] == [str(problem) for problem in Doctor(stage.store).audit()]


def test_a_task_without_secrets_has_no_second_copy(backend: Redis) -> None:
    """And its params are what the worker gets."""
    stage = scene(backend)
    stage.store.submit(submission())
    assert {"a": 1} == claimed(stage.store).params
    assert not backend.exists(stage.keys.secrets(ID))


def test_masked_params_are_never_run(stage: Scene, backend: Redis) -> None:
    """When the secrets are gone or damaged the attempt fails and says so: a mask would be used as a password."""
    backend.delete(stage.keys.secrets(ID))
    assert isinstance(stage.store.claim(CLAIM), NothingToClaim)
    assert stage.keys.secrets(ID) in str(backend.get(stage.keys.error(ID)))
    assert any("secrets is gone" in str(problem) for problem in Doctor(stage.store).audit())


def test_secrets_go_with_their_task(backend: Redis) -> None:
    """A purge leaves nothing of them."""
    stage = scene(backend)
    put(stage, State.SUCCESS, params_json=SHOWN, secrets_json=WHOLE)
    make_outdated(stage)
    assert 1 == stage.store.purge().moved
    assert [stage.keys.tombstone(ID)] == [key for key in backend.scan_iter() if ID in key]


@pytest.mark.parametrize("of", [{}, {"owner": "bob"}])
def test_an_id_of_another_owner_is_taken(backend: Redis, of: dict[str, str]) -> None:
    """For who is confined even the very same wish is another one; who may see everything finds the task."""
    stage = scene(backend)
    stage.store.submit(submission(**of))
    assert "already" == stage.store.submit(submission(owner="ann")).word
    assert "conflict" == stage.store.submit(submission(owner="ann", confined=True)).word
    stage.store.submit(submission("t2", owner="ann"))
    assert "already" == stage.store.submit(submission("t2", owner="ann", confined=True)).word


@pytest.mark.parametrize("owner", ["", "bob"])
def test_who_is_confined_depends_on_his_own_tasks_only(backend: Redis, owner: str) -> None:
    """Tasks of others and of nobody are unknown to him, also those that were purged, of whom nobody knows any more."""
    stage = scene(backend)
    stage.store.submit(submission("own", owner="ann"))
    stage.store.submit(submission("other", owner=owner))
    backend.set(stage.keys.tombstone("past"), "SUCCESS 1", px=60_000)
    wish = submission(owner="ann", depends_on=("own", "other", "past", "never"))
    # Whoever submits for an owner: a task depends on none of another one.
    assert (("other", "never") if owner else ("never",)) == stage.store.submit(wish).unknown
    confined = submission(owner="ann", confined=True, depends_on=wish.depends_on)
    assert ("other", "past", "never") == stage.store.submit(confined).unknown
    assert "moved" == stage.store.submit(submission(owner="ann", confined=True, depends_on=("own",))).word
    assert [] == audit(backend, stage.keys, [ID, "own", "other"])
