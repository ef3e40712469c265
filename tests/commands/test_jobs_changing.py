"""The verbs of ``awa_jobs`` that change jobs, by ids and by filter."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from awa_django import operations
from awa_django.management import selection, verbs
from awa_django.operations import OperationResult
from awa_django.operations.change import BULK_KIND
from awa_django.states import JobState
from awa_django.storage.listing import ListedJob
from tests.commands.conftest import Manage, Terminal
from tests.factories import insert_job, reload_job

KEYS = {"verb", "dry_run", "changed_count", "refused_count", "changed", "refused"}
CASES = [
    ("retry", (), "failed", "available"),
    ("cancel", ("--reason", "unwanted"), "running", "cancelled"),
    ("run-now", (), "scheduled", "available"),
    ("reschedule", ("--at", "2999-01-01"), "available", "scheduled"),
    ("set-priority", ("--priority", "4"), "available", "available"),
    ("move", ("--to", "other"), "available", "available"),
    ("delete", (), "completed", "gone"),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("verb", "options", "before", "after"), CASES, ids=[case[0] for case in CASES])
def test_each_verb_by_id(
    manage: Manage, verb: str, options: tuple[str, ...], before: str, after: str | None
) -> None:
    job_id = insert_job(before)
    planned = manage("awa_jobs", verb, job_id, *options, "--dry-run", "--json")
    assert (planned.document["dry_run"], planned.document["changed"]) == (True, [job_id])
    assert reload_job(job_id).state == before
    done = manage("awa_jobs", verb, job_id, *options, "--json")
    assert set(done.document) == KEYS
    assert (done.code, done.document["changed"], done.document["refused"]) == (0, [job_id], [])
    job = reload_job(job_id)
    assert ("gone" if job is None else job.state) == after
    if verb == "set-priority":
        assert job.priority == 4
    elif verb == "move":
        assert job.queue == "other"
    elif verb == "cancel":
        assert "unwanted" in job.errors[-1]["error"]


@pytest.mark.django_db
@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)], ids=["done", "dry run"])
def test_each_row_has_its_outcome(manage: Manage, dry_run: tuple[str, ...]) -> None:
    ended, waiting = insert_job("completed"), insert_job()
    unknown = waiting + 1_000_000
    found = manage("awa_jobs", "cancel", ended, waiting, unknown, waiting, "--json", *dry_run)
    assert found.code == 1
    assert found.document["changed"] == [waiting]
    assert found.document["refused"] == [
        {"id": ended, "state": "completed", "reason": "is completed"},
        {"id": unknown, "state": None, "reason": "does not exist"},
    ]
    again = manage("awa_jobs", "cancel", ended, waiting, unknown, *dry_run)
    assert again.code == 1
    assert "left: is completed" in again.stdout
    assert "left: does not exist" in again.stdout


@pytest.mark.django_db
def test_summary_counts(manage: Manage) -> None:
    job_ids = [insert_job("failed") for _ in range(3)]
    assert manage("awa_jobs", "retry", *job_ids).stdout.splitlines()[-1] == "3 retried"
    assert manage("awa_jobs", "retry", *job_ids).stdout.splitlines()[-1] == "0 retried, 3 left as they are"


@pytest.mark.django_db
def test_all_matching(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "BATCH", 2)
    monkeypatch.setattr(selection, "LOOK", 3)
    mine = [insert_job(state, queue="mail") for state in JobState]
    others = [insert_job(state, queue="other") for state in JobState]
    planned = manage("awa_jobs", "cancel", "--all-matching", "--queue", "mail", "--dry-run", "--json")
    assert planned.document["changed_count"] == 5
    assert reload_job(mine[0]).state == "scheduled"
    done = manage("awa_jobs", "cancel", "--all-matching", "--queue", "mail", "--yes", "--json")
    assert (done.code, done.document["changed_count"], done.document["refused_count"]) == (0, 5, 0)
    assert done.document["changed"] == planned.document["changed"]
    assert [reload_job(job_id).state for job_id in others] == list(JobState)
    # All that ended so are retried, but for those of a state that was not asked for.
    retried = manage(
        "awa_jobs", "retry", "--all-matching", "--queue", "mail", "--state", "failed", "--yes", "--json"
    )
    assert retried.document["changed_count"] == 1


@pytest.mark.django_db
def test_account_names_some_and_counts_all(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "NAMED", 2)
    for _ in range(3):
        insert_job(queue="mail")
    document = manage("awa_jobs", "delete", "--all-matching", "--queue", "mail", "--yes", "--json").document
    assert (document["changed_count"], len(document["changed"])) == (3, 2)


@pytest.mark.django_db
def test_walks_of_the_admin_are_left_alone(manage: Manage) -> None:
    walker, other = insert_job(kind=BULK_KIND), insert_job()
    manage("awa_jobs", "cancel", "--all-matching", "--queue", "default", "--yes")
    assert (reload_job(walker).state, reload_job(other).state) == ("available", "cancelled")
    manage("awa_jobs", "cancel", "--all-matching", "--kind", BULK_KIND, "--yes")
    assert reload_job(walker).state == "cancelled"


@pytest.mark.django_db
def test_jobs_that_came_since_are_left(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "BATCH", 1)
    insert_job(queue="mail")
    insert_job(queue="mail")
    later: list[int] = []
    delete = operations.verbs.delete

    def enqueue_meanwhile(job_ids: list[int], *, using: str) -> OperationResult:
        later.append(insert_job(queue="mail"))
        return delete(job_ids, using=using)

    monkeypatch.setattr(operations.verbs, "delete", enqueue_meanwhile)
    assert manage("awa_jobs", "delete", "--all-matching", "--queue=mail", "--yes").stdout.endswith(
        "2 deleted\n"
    )
    assert all(reload_job(job_id) for job_id in later)


@pytest.mark.django_db
def test_jobs_that_somebody_else_changed_since_are_left(
    manage: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted, retried = insert_job("failed"), insert_job("failed")
    walk = selection.walk

    def overtaken(*args: Any, **kwargs: Any) -> Iterator[list[ListedJob]]:
        for jobs in walk(*args, **kwargs):
            operations.retry(retried)
            yield jobs

    monkeypatch.setattr(selection, "walk", overtaken)
    done = manage("awa_jobs", "delete", "--all-matching", "--state", "failed", "--yes", "--json")
    assert done.document["changed"] == [deleted]
    assert done.document["refused"] == [{"id": retried, "state": "available", "reason": "matches no more"}]
    assert reload_job(retried).state == "available"


@pytest.mark.django_db
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 1), ("no\n", 1), ("", 1)])
def test_it_asks_before_it_changes_all(
    manage: Manage, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    job_id = insert_job(queue="mail")
    ended = manage("awa_jobs", "delete", "--all-matching", "--queue", "mail")
    assert ended.code == code
    assert "delete: 1 job matches" in ended.stderr
    assert (reload_job(job_id) is None) == (code == 0)


@pytest.mark.django_db
def test_jobs_that_come_while_it_asks_are_left(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[int] = []

    def answer() -> str:
        later.append(insert_job(queue="mail"))
        return "yes\n"

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=answer))
    job_id = insert_job(queue="mail")
    assert manage("awa_jobs", "delete", "--all-matching", "--queue", "mail").code == 0
    assert reload_job(job_id) is None
    assert reload_job(later[0]) is not None


@pytest.mark.django_db
def test_nobody_to_ask_is_said(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
    job_id = insert_job(queue="mail")
    ended = manage("awa_jobs", "delete", "--all-matching", "--queue", "mail")
    assert (ended.code, ended.error) == (2, "say --yes: there is nobody to ask here")
    assert reload_job(job_id)


@pytest.mark.django_db
def test_interrupted_it_says_how_far_it_was(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "BATCH", 1)
    for _ in range(3):
        insert_job(queue="mail")
    delete = operations.verbs.delete
    calls: list[int] = []

    def interrupt(job_ids: list[int], *, using: str) -> OperationResult:
        calls.extend(job_ids)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return delete(job_ids, using=using)

    monkeypatch.setattr(operations.verbs, "delete", interrupt)
    ended = manage("awa_jobs", "delete", "--all-matching", "--queue", "mail", "--yes", "--json")
    assert (ended.code, ended.document["changed_count"]) == (130, 1)
    assert "goes on" in ended.stderr


@pytest.mark.django_db
def test_long_walk_tells_its_progress(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "BATCH", 1)
    ticks = iter(range(0, 1_000, 3))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    for _ in range(2):
        insert_job("failed", queue="mail")
    ended = manage("awa_jobs", "retry", "--all-matching", "--queue", "mail", "--yes", "--json")
    assert "1 retried so far" in ended.stderr
    assert ended.document["changed_count"] == 2
