"""What docs/deployment.md says on logical replication is so."""

from __future__ import annotations

import pytest
from django.db import OperationalError, connection, transaction

from tests.test_docs_pages import blocks

pytestmark = pytest.mark.django_db
SQL = [code for language, _, code in blocks("docs/deployment.md") if language == "sql"]


def ends_of_jobs_are_possible() -> bool:
    """Whether the tables without a primary key can be deleted from, as the ends of jobs do."""
    with connection.cursor() as cursor:
        try:
            for table in ("job_unique_claims", "queue_stats_deltas"):
                with transaction.atomic():
                    cursor.execute(f"DELETE FROM awa.{table}")
        except OperationalError as exc:
            return "replica identity" not in str(exc)
    return True


def test_a_publication_of_all_tables_needs_what_the_page_names() -> None:
    leave_out, publish_all, _ = [code.split(";") for code in SQL]
    with connection.cursor() as cursor:
        cursor.execute(leave_out[0])
        assert ends_of_jobs_are_possible()
        *identities, publication, _ = publish_all
        cursor.execute(publication)
        assert not ends_of_jobs_are_possible()
        for statement in identities:
            cursor.execute(statement)
        assert ends_of_jobs_are_possible()


def test_the_sequence_goes_on_after_the_newest_job() -> None:
    with connection.cursor() as cursor:
        cursor.execute(SQL[-1])  # of an empty queue
        cursor.execute("SELECT setval('awa.jobs_id_seq', 5000)")
        cursor.execute("INSERT INTO awa.jobs (kind) VALUES ('x') RETURNING id")
        [(job_id,)] = cursor.fetchall()
        cursor.execute("SELECT setval('awa.jobs_id_seq', 1)")
        cursor.execute(SQL[-1])
        assert cursor.fetchone() == (job_id,)
