"""What docs/deployment.md says on logical replication is so, and its units are ones."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from tests.test_docs_pages import blocks

pytestmark = pytest.mark.django_db
SQL = [code for language, _, code in blocks("docs/deployment.md") if language == "sql"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("page", ["docs/deployment.md", "docs/worker.md"])
def test_units_are_understood_by_systemd(page: str, tmp_path: Path) -> None:
    [unit] = [code for language, _, code in blocks(page) if language == "ini" and "[Service]" in code]
    unit, replaced = re.subn(r"(?<=ExecStart=)\S+/python\b", sys.executable, unit)
    assert replaced == 1
    path = tmp_path / "mysite-worker.service"
    path.write_text(re.sub(r"(?<=WorkingDirectory=)\S+", str(tmp_path), unit))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if path.name in line] == []


def test_every_table_can_be_published() -> None:
    """PostgreSQL refuses to change a published table that does not say what identifies its rows."""
    with connection.cursor() as cursor:
        for code in SQL[:2]:
            cursor.execute(code)
        cursor.execute(
            "SELECT relation.relname, min(attribute.attname) FROM pg_class AS relation "
            "JOIN pg_attribute AS attribute ON attribute.attrelid = relation.oid AND attribute.attnum = 1 "
            "WHERE relation.relnamespace = 'awa'::regnamespace AND relation.relkind = 'r' GROUP BY 1"
        )
        tables = dict(cursor.fetchall())
        assert tables.keys() >= {"jobs_hot", "scheduled_jobs", "job_unique_claims", "queue_stats_deltas"}
        for table, column in tables.items():
            if table != "jobs_hot" and table != "scheduled_jobs":  # an id is never changed
                cursor.execute(f"UPDATE awa.{table} SET {column} = {column}")
            cursor.execute(f"DELETE FROM awa.{table}")


def test_the_sequence_goes_on_after_the_newest_job() -> None:
    with connection.cursor() as cursor:
        cursor.execute(SQL[-1])  # of an empty queue
        cursor.execute("SELECT setval('awa.jobs_id_seq', 5000)")
        cursor.execute("INSERT INTO awa.jobs (kind) VALUES ('x') RETURNING id")
        [(job_id,)] = cursor.fetchall()
        cursor.execute("SELECT setval('awa.jobs_id_seq', 1)")
        cursor.execute(SQL[-1])
        assert cursor.fetchone() == (job_id,)
