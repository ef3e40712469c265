"""``"AUTOCOMMIT": False`` in ``DATABASES``: what says that it is done is committed, as nobody else would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command, load_command_class
from django.db import Error, connection, transaction

from awa_django import job, own_transaction, registry
from awa_django.bulk_operation import bulk_operation
from awa_django.checks import check_database
from awa_django.committing import committing
from awa_django.management.verbs import Account
from awa_django.operations import Change
from awa_django.operations.walk import Selection
from awa_django.storage.rows import Ending
from awa_django.testing.running import run_available
from tests.conftest import Connect
from tests.factories import insert_job
from tests.worker.attempts import claimed, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


@job(kind="autocommit_off.note")
def note(number: int) -> None: ...


@pytest.fixture(autouse=True)
def autocommit_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The connection of the tests, opened anew as the settings then say; and the kinds of these tests."""
    for handler in (note.handler, bulk_operation.handler):
        registry.register(handler)
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    yield
    connection.close()
    registry.unregister(note.handler)


@pytest.fixture
def committed(connect: Connect) -> Any:
    """What another session reads."""
    session = connect()
    return lambda query: session.execute(query).fetchall()


def insert_and_commit(count: int, state: str = "available") -> list[int]:
    ids = [insert_job(state, queue="mail") for _ in range(count)]
    connection.commit()
    return ids


def on_the_command_line(*arguments: str) -> None:
    load_command_class("awa_django", arguments[0]).run_from_argv(["manage.py", *arguments])


def test_the_alias_is_warned_of(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    [message] = check_database()
    assert (message.id, "'default'" in message.msg) == ("awa.W003", True)
    monkeypatch.setitem(settings.DATABASES["default"], "AUTOCOMMIT", True)
    assert check_database() == []


def test_commands_commit_what_they_say_that_they_did(committed: Any) -> None:
    on_the_command_line("awa_queues", "pause", "mail")
    assert committed("SELECT queue, paused FROM awa.queue_meta") == [("mail", True)]
    on_the_command_line("awa_queues", "resume", "mail")
    assert committed("SELECT queue, paused FROM awa.queue_meta") == [("mail", False)]


def test_a_command_that_is_stopped_keeps_the_batches_that_it_did(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that the same command goes on with what still matches."""
    insert_and_commit(3)
    monkeypatch.setattr("awa_django.management.selection.BATCH", 2)
    cancel = Account.run_matching

    def once(*arguments: Any) -> None:
        monkeypatch.setattr(Account, "run_matching", mock.Mock(side_effect=KeyboardInterrupt))
        cancel(*arguments)

    monkeypatch.setattr(Account, "run_matching", once)
    with pytest.raises(SystemExit):
        on_the_command_line("awa_jobs", "cancel", "--all-matching", "--queue", "mail", "--yes")
    assert committed("SELECT state::text, count(*) FROM awa.jobs GROUP BY 1 ORDER BY 2") == [
        ("available", 1),
        ("cancelled", 2),
    ]


def test_a_transaction_of_who_calls_a_command_stays_its_own(committed: Any) -> None:
    insert_job(queue="mail")
    call_command("awa_queues", "pause", "mail", verbosity=0)
    connection.rollback()
    assert committed("SELECT FROM awa.queue_meta") == committed("SELECT FROM awa.jobs") == []


def test_what_has_to_stay_does(committed: Any) -> None:
    note.enqueue(1)
    with own_transaction():
        note.enqueue(2)
    connection.rollback()
    assert committed("SELECT args ->> 'number' FROM awa.jobs") == [("2",)]


def test_an_atomic_handler_is_committed_with_its_end(committed: Any) -> None:
    called: list[str] = []

    @job(kind="autocommit_off.atomic", atomic=True)
    def atomic(fails: bool) -> None:
        note.enqueue(1)
        transaction.on_commit(lambda: called.append("on_commit"))
        if fails:
            raise LookupError

    [job_id] = insert_and_commit(1, "running")
    try:
        assert isinstance(run(atomic, claimed('{"fails": true}', id=job_id, run_lease=1, attempt=3)), Ending)
        assert (called, committed("SELECT state::text FROM awa.jobs")) == ([], [("running",)])
        assert run(atomic, claimed('{"fails": false}', id=job_id, run_lease=1)) is None
    finally:
        registry.unregister(atomic.handler)
    assert called == ["on_commit"]
    assert committed("SELECT state::text FROM awa.jobs ORDER BY id") == [("completed",), ("available",)]
    assert not connection.get_autocommit()


def test_all_that_match_is_committed_by_its_job(committed: Any) -> None:
    ids = insert_and_commit(2)
    change, chosen = Change(operation="cancel"), Selection(highest_id=ids[-1], queue="mail")
    ended = run_available(bulk_operation.enqueue(change, chosen, "ann", None, "sent").id)
    assert ended is not None
    assert ended.outcome == "completed"
    connection.close()  # as the worker does with a transaction that is left open
    assert committed("SELECT state::text FROM awa.jobs WHERE queue = 'mail'") == [("cancelled",)] * 2


def test_what_was_begun_is_committed_and_a_broken_connection_hides_no_error(committed: Any) -> None:
    note.enqueue(1)
    with committing("default"):
        assert committed("SELECT count(*) FROM awa.jobs") == [(1,)]
        assert connection.get_autocommit()
    assert not connection.get_autocommit()
    with pytest.raises(Error, match=r"terminating|closed"), committing("default"):
        connection.cursor().execute("SELECT pg_terminate_backend(pg_backend_pid())")
    connection.close()
