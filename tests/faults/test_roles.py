"""Roles with the documented rights do all of their work, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db import ProgrammingError, transaction
from django.test import Client
from psycopg.errors import InsufficientPrivilege

from awa_django import Unique, doctor, operations, schedules
from awa_django.errors import AwaError
from awa_django.models import Job
from awa_django.storage.rights import WORKERS_RIGHTS, missing_grants
from awa_django.worker.options import make_options
from awa_django.worker.supervisor import Supervisor
from tests import handlers
from tests.fault_report import Observe
from tests.faults.roles import (
    SUFFIX,
    UNIQUE,
    Become,
    Installed,
    documented,
    drain_as_worker,
    refused,
)
from tests.test_docs import blocks

F89 = "a role with the documented grants only; "
FOR_NO_ONE = (
    "DROP TABLE awa.jobs_hot",
    "CREATE TABLE awa.more (x integer)",
    "TRUNCATE awa.jobs_hot",
    "ALTER FUNCTION awa.wake(text[]) RESET search_path",
    "CREATE OR REPLACE FUNCTION awa.wake(text[]) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "DELETE FROM awa.schema_version",
)


def test_grants_of_the_projects_own_tables_hold_for_later_ones(installed: Installed) -> None:
    with installed.session("awa_migrator") as migrator, migrator.transaction(force_rollback=True):
        migrator.execute(documented(3, installed.name).encode())
        migrator.execute("CREATE TABLE public.later (id bigserial)")
        for role in ("awa_producer", "awa_worker", "awa_operator"):
            for table in ("public.auth_user", "public.later"):
                granted = migrator.execute(
                    "SELECT has_table_privilege(%(role)s, %(table)s, 'SELECT'), "
                    "has_table_privilege(%(role)s, %(table)s, 'TRUNCATE'), "
                    "has_sequence_privilege(%(role)s, pg_get_serial_sequence(%(table)s, 'id'), 'USAGE')",
                    {"role": role + SUFFIX, "table": table},
                )
                assert granted.fetchone() == (True, False, True), (role, table)


@pytest.mark.fault("F89", injected=F89 + "a producer enqueues in every way, then tries what it may not")
def test_producer_enqueues_and_does_nothing_else(
    installed: Installed, become: Become, observe: Observe
) -> None:
    become("awa_producer")
    first = handlers.record.enqueue(number=1)
    handlers.record.using(delay=60).enqueue(number=2)
    handlers.record.enqueue_many({"number": number} for number in range(10))
    unique = handlers.record.using(unique=Unique(args=True))
    held = unique.enqueue(number=3)
    assert unique.enqueue(number=3).holder_id == held.id
    assert not unique.enqueue_many([{"number": 3}])[0].created
    with installed.session("awa_producer") as session:
        session.execute("INSERT INTO awa.jobs (kind) VALUES ('k') RETURNING id")
        session.execute("INSERT INTO awa.jobs (kind, run_at) VALUES ('k', now() + interval '1 day')")
        session.execute(
            f"INSERT INTO awa.jobs (kind, unique_key, unique_states) VALUES ('k', {UNIQUE})".encode()
        )
    count = refused(
        installed,
        "awa_producer",
        *FOR_NO_ONE,
        "SELECT args FROM awa.jobs",
        "SELECT args FROM awa.jobs_hot",
        f"UPDATE awa.jobs SET state = 'cancelled' WHERE id = {first.id}",
        "UPDATE awa.jobs_hot SET priority = 1",
        "DELETE FROM awa.jobs",
        "DELETE FROM awa.jobs_hot",
        "DELETE FROM awa.job_unique_claims",
        "INSERT INTO awa.queue_meta (queue, paused) VALUES ('default', true)",
        "UPDATE awa.leaders SET holder = 'me'",
        "SELECT * FROM awa.cron_jobs",
        "SELECT setval('awa.jobs_id_seq', 1)",
    )
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        transaction.atomic(using="as-awa_producer"),
    ):
        operations.cancel(first.id)
    observe(f"enqueue, for later, in bulk, unique and by SQL work; {count + 1} other statements are refused")


@pytest.mark.acceptance
@pytest.mark.fault("F89", injected=F89 + "a worker runs jobs of every outcome, then tries what it may not")
def test_worker_runs_everything_and_owns_nothing(
    installed: Installed, become: Become, tmp_path: Path, observe: Observe
) -> None:
    ran = drain_as_worker(installed, become, tmp_path)
    count = refused(
        installed,
        "awa_worker",
        *FOR_NO_ONE,
        "INSERT INTO awa.queue_meta (queue, paused) VALUES ('default', true)",
        "DELETE FROM awa.leaders",
        "TRUNCATE awa.cron_jobs",
        "SELECT setval('awa.jobs_id_seq', 1)",
    )
    observe(f"{ran} jobs ended as they should; {count} other statements are refused")


@pytest.mark.fault("F89", injected=F89 + "an operator uses each verb, then tries what it may not")
def test_operator_has_every_verb(installed: Installed, become: Become, observe: Observe) -> None:
    become("awa_producer")
    ids = [handlers.record.enqueue(number=number).id for number in range(4)]
    later = handlers.record.using(delay=60).enqueue(number=5).id
    unique = handlers.record.using(unique=Unique(args=True)).enqueue(number=6).id
    become("awa_operator")
    assert operations.cancel([ids[0], unique]).changed == (ids[0], unique)
    assert operations.retry([ids[0], unique]).changed == (ids[0], unique)
    assert operations.run_now(later).changed == (later,)
    assert operations.set_priority(ids, 1).changed == tuple(ids)
    assert operations.move_queue(ids[1], "other").changed == (ids[1],)
    assert operations.delete(ids[2]).changed == (ids[2],)
    assert operations.pause_queue("default", by="me").changed
    assert operations.resume_queue("default").changed
    with installed.session() as session:
        session.execute("INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES ('s', '@daily', 'k')")
    assert schedules.pause("s", by="me")
    assert schedules.resume("s")
    assert Job.objects.filter(pk=schedules.run_now("s")).exists()
    assert Job.objects.filter(pk=ids[3]).update(priority=3) == 1
    count = refused(
        installed,
        "awa_operator",
        *FOR_NO_ONE,
        "UPDATE awa.leaders SET holder = 'me'",
        "INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES ('n', '@daily', 'k')",
        "DELETE FROM awa.runtime_instances",
    )
    observe(f"12 verbs work; {count} other statements are refused")


@pytest.mark.fault(
    "F89", injected=F89 + "a reader opens every page of the admin and asks the doctor, then acts"
)
def test_reader_sees_everything_and_changes_nothing(
    installed: Installed, become: Become, admin_client: Client, observe: Observe
) -> None:
    become("awa_producer")
    job_id = handlers.record.enqueue(number=1).id
    become("awa_reader")
    pages = [
        "hotjob/",
        "deferredjob/",
        "queuemeta/",
        "cronjob/",
        "runtimeinstance/",
        f"hotjob/{job_id}/change/",
    ]
    for page in pages:
        assert admin_client.get(f"/admin/awa/{page}").status_code == 200, page
    assert [str(finding) for finding in doctor.diagnose() if not finding.is_warning] == []
    with pytest.raises(ProgrammingError, match="permission denied"):
        admin_client.post(
            "/admin/awa/hotjob/",
            {"action": "cancel_jobs", "_selected_action": [job_id], "confirmed": "yes"},
        )
    assert Job.objects.get(pk=job_id).state == "available"
    with installed.session() as session:
        tables = session.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'awa'::regnamespace AND relkind IN ('r', 'v')"
        ).fetchall()
    count = refused(
        installed,
        "awa_reader",
        *FOR_NO_ONE,
        *(f"DELETE FROM awa.{table}" for (table,) in tables),
        "INSERT INTO awa.jobs (kind) VALUES ('k')",
        "UPDATE awa.jobs SET priority = 1",
        "SELECT nextval('awa.jobs_id_seq')",
    )
    observe(f"{len(pages)} pages and the doctor work; {count + 1} statements that write are refused")


@pytest.mark.fault("F89", injected="a role without any grant")
def test_without_a_grant_nothing_is_to_be_had(installed: Installed, observe: Observe) -> None:
    with installed.session() as server:
        server.execute(f"CREATE ROLE awa_nobody{SUFFIX}".encode())
        try:
            server.execute(f"SET ROLE awa_nobody{SUFFIX}".encode())
            for statement in ("SELECT FROM awa.jobs", "SELECT awa.wake('{default}')"):
                with pytest.raises(InsufficientPrivilege):
                    server.execute(statement.encode())
        finally:
            server.execute("RESET ROLE")
            server.execute(f"DROP ROLE awa_nobody{SUFFIX}".encode())
    observe("neither table nor function can be reached")


def test_doctor_needs_no_more_than_a_reader(installed: Installed, become: Become) -> None:
    """A violation is seen by a reader too: the test above could not tell."""
    become("awa_reader")
    installed.execute("INSERT INTO awa.job_unique_claims VALUES ('\\x00', 1)")
    assert [finding.name for finding in doctor.diagnose() if not finding.is_warning] == ["claims_without_job"]


@pytest.mark.parametrize("role", ["awa_reader", "awa_operator"])
def test_doctor_tells_nobody_of_the_vacuum_who_runs_no_worker(
    installed: Installed, become: Become, role: str
) -> None:
    become(role)
    assert "W2" not in [finding.invariant for finding in doctor.diagnose()]


def test_rights_that_a_worker_looks_for_are_those_of_the_page() -> None:
    granted: dict[str, tuple[str, ...]] = {}
    grants = blocks("docs/roles.md", "sql")[2]
    for rights, tables, roles in re.findall(r"GRANT ([A-Z, ]+) ON (awa\.[\w., ]+) TO ([\w, ]+);", grants):
        if "awa_worker" in roles:
            granted |= dict.fromkeys(tables.split(", "), tuple(rights.split(", ")))
    assert granted == WORKERS_RIGHTS


def test_worker_does_not_start_without_the_newest_grants_and_names_them(
    installed: Installed, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"awa_worker{SUFFIX}"
    rights_of_late = ("DELETE ON awa.cron_jobs", "INSERT, UPDATE ON awa.queue_totals")
    become("awa_worker")
    monkeypatch.setattr("awa_django.worker.supervisor.disconnect", lambda: None)  # this is a test's thread
    worker = Supervisor(make_options(queues="default", known_queues=[]))
    with worker._poke, worker._poked:
        worker._prepare()
        with installed.session() as server:
            for rights in rights_of_late:
                server.execute(f"REVOKE {rights} FROM {role}".encode())
            try:
                with pytest.raises(AwaError) as refusal:
                    worker._prepare()
            finally:
                for rights in rights_of_late:
                    server.execute(f"GRANT {rights} TO {role}".encode())
    assert str(refusal.value) == (
        "this database role may not do what a worker does (docs/roles.md), as these grants are missing: "
        f"GRANT INSERT, UPDATE ON awa.queue_totals TO {role}; GRANT DELETE ON awa.cron_jobs TO {role}"
    )


def test_worker_may_have_rights_to_the_columns_that_it_writes_alone(installed: Installed) -> None:
    role = f"awa_worker{SUFFIX}"
    with installed.session() as server, installed.session("awa_worker") as worker:
        server.execute(f"REVOKE UPDATE ON awa.leaders FROM {role}".encode())
        try:
            assert missing_grants(worker) == [f"GRANT UPDATE ON awa.leaders TO {role}"]
            server.execute(f"GRANT UPDATE (holder, epoch, expires_at) ON awa.leaders TO {role}".encode())
            assert missing_grants(worker) == []
        finally:
            server.execute(f"REVOKE UPDATE ON awa.leaders FROM {role}".encode())
            server.execute(f"GRANT UPDATE ON awa.leaders TO {role}".encode())
