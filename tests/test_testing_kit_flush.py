"""Nothing of the queue outlives a test that commits: Django's flush empties it too."""

from __future__ import annotations

from unittest import mock

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import connection
from django.test import TestCase, TransactionTestCase
from django.test.utils import CaptureQueriesContext

from awa_django import job, registry
from awa_django.doctor import diagnose
from awa_django.management.commands import flush
from awa_django.models import Job, UniqueClaim
from awa_django.operations import pause_queue
from awa_django.testing import drain, inline
from tests.factories import insert_job
from tests.waiting import wait_until


class LeavesNothingTest(TransactionTestCase):
    """Each of its tests finds the queue empty, whichever runs first, and fills it."""

    def fill(self) -> None:
        assert Job.objects.count() == UniqueClaim.objects.count() == 0
        insert_job("available", unique_key=b"k" * 16, unique_states="11101001")
        insert_job("scheduled")
        pause_queue("mail")
        assert Job.objects.count() == 2

    @pytest.mark.fault(
        "U31", injected="TransactionTestCase: jobs and claims are committed, twice the same key"
    )
    def test_one(self) -> None:
        self.fill()

    @pytest.mark.fault("U31", injected="TransactionTestCase: the next test enqueues the same unique job")
    def test_another(self) -> None:
        self.fill()


class FlushCommandTest(TransactionTestCase):
    def test_whoever_says_no_keeps_the_jobs(self) -> None:
        insert_job()
        Group.objects.create(name="kept")
        with mock.patch("builtins.input", return_value="no"):
            call_command("flush", stdout=mock.Mock())
        assert (Job.objects.count(), Group.objects.count()) == (1, 1)

    def test_whoever_says_yes_loses_them(self) -> None:
        insert_job()
        pause_queue("mail")
        Group.objects.create(name="gone")
        with mock.patch("builtins.input", return_value="yes"):
            call_command("flush", stdout=mock.Mock())
        assert (Job.objects.count(), Group.objects.count()) == (0, 0)
        assert [finding for finding in diagnose() if not finding.is_warning] == []

    def test_an_unused_queue_costs_a_look(self) -> None:
        call_command("flush", interactive=False, inhibit_post_migrate=True)
        with CaptureQueriesContext(connection) as queries:
            call_command("flush", interactive=False, inhibit_post_migrate=True)
        assert not [query for query in queries if "TRUNCATE\n    awa." in query["sql"]]

    def test_it_needs_no_signal_after_the_flush(self) -> None:
        """With serialized_rollback or available_apps Django sends none."""
        insert_job()
        call_command("flush", interactive=False, inhibit_post_migrate=True)
        assert Job.objects.count() == 0

    def test_a_database_without_the_schema_is_flushed(self) -> None:
        Group.objects.create(name="gone")
        with connection.cursor() as cursor:
            cursor.execute("ALTER SCHEMA awa RENAME TO awa_elsewhere")
            try:
                call_command("flush", interactive=False, inhibit_post_migrate=True)
            finally:
                cursor.execute("ALTER SCHEMA awa_elsewhere RENAME TO awa")
        assert Group.objects.count() == 0

    def test_another_database_leaves_the_queue_alone(self) -> None:
        insert_job()
        with mock.patch.object(flush, "get_settings") as settings:
            settings.return_value.database = "queue"
            call_command("flush", interactive=False, inhibit_post_migrate=True)
        assert Job.objects.count() == 1

    def test_each_flush_leaves_djangos_own_as_it_was(self) -> None:
        call_command("flush", interactive=False, inhibit_post_migrate=True)
        assert "execute_sql_flush" not in vars(connection.ops)


async def note(name: str) -> None:
    await Group.objects.acreate(name=name)


def sessions() -> set[int]:
    """The server processes of this database's clients; one that has ended may still be among them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return {pid for (pid,) in cursor.fetchall()}


class SessionsTest(TransactionTestCase):
    @pytest.mark.fault(
        "U31", injected="jobs of async and sync handlers are drained and run inline, then sessions counted"
    )
    def test_running_jobs_leaves_no_session(self) -> None:
        declared = job(kind="flush.note")(note)
        try:
            before = sessions()
            declared.enqueue("drained")
            assert len(drain()) == 1
            with inline() as runs:
                declared.enqueue("inline")
            assert len(runs) == 1
            wait_until(lambda: sessions() <= before, message="sessions are left")
        finally:
            registry.unregister(declared.handler)
        assert Group.objects.count() == 2


class PlainTestCase(TestCase):
    def test_a_test_case_finds_nothing(self) -> None:
        assert Job.objects.count() == 0
