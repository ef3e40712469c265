"""Locked: which runs go on, and which of their rows somebody else has locked."""

from __future__ import annotations

import pytest

from awa_django.storage.locked import locked_runs, still_running
from awa_django.storage.rows import Attempt
from tests.conftest import Connect
from tests.factories import insert_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


def test_locked_runs_are_named_and_the_others_locked_by_us(connect: Connect) -> None:
    ids = [insert_job("running") for _ in range(3)]
    stale, ended = insert_job("running", run_lease=2), insert_job("completed", run_lease=1)
    locker, ours = connect(autocommit=False), connect(autocommit=False)
    locker.execute("SELECT FROM awa.jobs_hot WHERE id = ANY (%s) FOR UPDATE", [[ids[1], stale, ended]])
    attempts = [Attempt(job_id, 1) for job_id in (*reversed(ids), stale, ended, 2**60)]
    assert locked_runs(ours, attempts) == {Attempt(ids[1], 1)}
    # The locker finds ours locked now, and not its own.
    assert locked_runs(locker, attempts) == {Attempt(ids[0], 1), Attempt(ids[2], 1)}


def test_nothing_is_locked_when_nobody_locks(connect: Connect) -> None:
    attempts = [Attempt(insert_job("running"), 1) for _ in range(3)]
    with connect() as database:
        assert locked_runs(database, attempts) == set()
        assert locked_runs(database, []) == set()


def test_key_share_of_a_foreign_key_counts_as_free(connect: Connect) -> None:
    attempt = Attempt(insert_job("running"), 1)
    locker, ours = connect(autocommit=False), connect(autocommit=False)
    locker.execute("SELECT FROM awa.jobs_hot FOR KEY SHARE")
    assert locked_runs(ours, [attempt]) == set()


def test_runs_that_go_on_are_named_locked_or_not(connect: Connect) -> None:
    ids = [insert_job("running") for _ in range(2)]
    over = [insert_job("running", run_lease=2), insert_job("cancelled", run_lease=1), 2**60]
    locker = connect(autocommit=False)
    locker.execute("SELECT FROM awa.jobs_hot WHERE id = %s FOR UPDATE", [ids[0]])
    asked = [Attempt(job_id, 1) for job_id in (*reversed(over), *ids)]
    assert still_running(connect(), asked) == {Attempt(job_id, 1) for job_id in ids}
