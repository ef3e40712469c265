"""Other arguments for a job: of which states, how they are checked, and what becomes of unique keys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django import InvalidJob, Unique, job, operations, registry
from awa_django.models import Job
from awa_django.operations import Refusal
from awa_django.operations.change import BULK_KIND
from awa_django.storage import operate
from tests.factories import insert_job, reload_job, update_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def send() -> Iterator[Any]:
    """A job whose key is made of one of its arguments."""

    @job(kind="tests.edited", unique=Unique(args=("order_id",), period=timedelta(hours=1)))
    def edited(order_id: int, to: str = "") -> None:
        """Never run."""

    yield edited
    registry.unregister(edited.handler)


def text_of(job_id: int) -> str:
    found = operate.editable_args(connection, job_id)
    assert found is not None
    return found.args


@pytest.mark.parametrize("state", ["available", "scheduled", "retryable", "failed", "cancelled"])
def test_arguments_of_a_job_that_does_not_run_are_replaced(state: str) -> None:
    job_id = insert_job(state, args={"a": 1})
    before = reload_job(job_id)
    result = operations.edit_args(job_id, '{"a": 1180591620717411303424, "b": 1.10}')
    assert result.changed == (job_id,)
    assert text_of(job_id) == '{"a": 1180591620717411303424, "b": 1.10}'
    after = reload_job(job_id)
    assert {**vars(after), "args": None} == {**vars(before), "args": None}


@pytest.mark.parametrize("state", ["running", "waiting_external", "completed"])
def test_others_are_left(state: str) -> None:
    job_id = insert_job(state, args={"a": 1})
    result = operations.edit_args(job_id, "{}")
    assert [(each.job_id, each.reason) for each in result.refused] == [(job_id, f"is {state}")]
    assert reload_job(job_id).args == {"a": 1}


def test_who_comes_late_changes_nothing() -> None:
    job_id = insert_job(args={"a": 1})
    assert operations.edit_args(job_id, '{"a": 2}', seen='{"a": 1}').changed
    [again] = operations.edit_args(job_id, '{"a": 2}', seen='{"a": 1}').refused
    assert again.reason == "has these arguments already"
    [late] = operations.edit_args(job_id, '{"a": 3}', seen='{"a": 1}').refused
    assert late.reason == "has got other arguments meanwhile"
    assert operations.edit_args(2**70, "{}").refused == (Refusal(2**70, None, "does not exist"),)
    assert reload_job(job_id).args == {"a": 2}


def test_a_job_that_moves_between_the_look_and_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = insert_job("scheduled", args={"a": 1})
    edit, calls = operate.edit_args, []

    def move_first(*args: Any, **options: Any) -> bool:
        calls.append(1)
        if len(calls) == 1:
            operations.run_now(job_id)
            update_job(
                job_id,
                state="'running'",
                attempt="1",
                run_lease="1",
                heartbeat_at="now()",
                attempted_at="now()",
            )
        return edit(*args, **options)

    monkeypatch.setattr(operate, "edit_args", move_first)
    assert operations.edit_args(job_id, "{}").refused[0].reason == "is running"
    assert reload_job(job_id).args == {"a": 1}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ('{"order_id": "x"}', "'order_id' .* does not fit its annotation"),
        ('{"to": "x"}', "needs the argument 'order_id'"),
        ('{"order_id": 1, "more": 1}', "has no parameter 'more'"),
        ('{"order_id": 1', "no JSON"),
        ('{"order_id": 1, "to": "' + "x" * 2**20 + '"}', "MAX_ARGS_BYTES"),
    ],
    ids=range(5),
)
def test_a_known_kind_says_what_does_not_fit(args: str, problem: str, send: Any) -> None:
    job_id = insert_job(kind="tests.edited", args={"order_id": 1})
    with pytest.raises(InvalidJob, match=problem):
        operations.edit_args(job_id, args)
    assert reload_job(job_id).args == {"order_id": 1}


def test_a_number_that_postgresql_does_not_hold_breaks_nothing() -> None:
    job_id = insert_job()
    with pytest.raises(InvalidJob, match="cannot store"):
        operations.edit_args(job_id, '{"a": 1e999999}')
    assert Job.objects.filter(pk=job_id).exists()  # the transaction goes on


def test_what_a_unique_key_is_made_of_cannot_be_changed(send: Any) -> None:
    job_id = send.enqueue(1, "ann").id
    assert operations.edit_args(job_id, '{"order_id": 1, "to": "bob"}').changed == (job_id,)
    [refusal] = operations.edit_args(job_id, '{"order_id": 2, "to": "bob"}').refused
    assert refusal.reason == "has a unique key that is made of what was changed"
    assert send.holder_id(1) == job_id
    assert send.holder_id(2) is None


def test_a_unique_key_that_cannot_be_told_keeps_the_arguments(send: Any) -> None:
    other = send.using(unique=Unique(args=True)).enqueue(5)
    unknown = insert_job(unique_key=bytes(16), unique_states="11101001")
    for job_id in (other.id, unknown):
        [refusal] = operations.edit_args(job_id, '{"order_id": 5, "to": "x"}').refused
        assert refusal.reason.startswith("has a unique key, and it cannot be told")


def test_what_somebody_confirmed_is_not_turned_into_something_else() -> None:
    """Who may edit arguments would do by it what they have no permission for."""
    job_id = insert_job(kind=BULK_KIND, args={"change": {"operation": "retry"}})
    [refusal] = operations.edit_args(job_id, '{"change": {"operation": "delete"}}').refused
    assert refusal.reason == "does what somebody confirmed, and nothing else"
