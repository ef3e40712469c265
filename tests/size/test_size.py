"""What makes a page fail, how the table goes into the documentation, and all of it at a small size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.scratch_database import Query
from tests.size import report
from tests.size.fill import fill
from tests.size.measure import MOST_STATEMENTS, Timing
from tests.size.pages import COMMANDS, LONG_COMMANDS, call_as_asked

PROJECT_DIR = Path(__file__).resolve().parents[2]
GOOD = Timing("hotjob", 80.0, 40.0, 30.0, 7, "Index Scan jobs_hot_pkey, 101 rows")


def test_a_page_that_is_slow_talkative_or_scans_is_complained_of() -> None:
    slow = Timing("slow", 80.0, 1000.5, 30.0, 7, "")
    talkative = Timing("talkative", 80.0, 40.0, 30.0, MOST_STATEMENTS + 1, "")
    scanning = Timing("scanning", 80.0, 40.0, 30.0, 7, "", ["jobs_hot"])
    broken = Timing("broken", 0, 0, 0, 0, "", failure="AssertionError: 500")
    command = Timing("command awa_jobs list", 80.0, 40.0, 30.0, 60, "")
    doctor = Timing("command awa_doctor --full", 80_000.0, 80_000.0, 30_000.0, 600, "", is_long=True)
    assert report.complaints([GOOD, slow, talkative, scanning, broken, command, doctor]) == [
        "slow: takes over 1000 ms",
        "talkative: sends over 8 statements",
        "scanning: scans jobs_hot",
        "broken: AssertionError: 500",
    ]


def test_the_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    for _ in range(2):
        report.into_page(page, [GOOD], "Taken on a toaster.")
        text = page.read_text()
        assert text.startswith("before\n")
        assert text.endswith("\nafter\n")
        assert "old" not in text
        assert text.count("| hotjob | 80 | 40 | 30 | 7 | Index Scan jobs_hot_pkey, 101 rows |") == 1
        assert "Taken on a toaster." in text
    assert report.BEGIN in (PROJECT_DIR / "docs" / "performance.md").read_text()


@pytest.mark.django_db
@pytest.mark.parametrize("command", COMMANDS + LONG_COMMANDS, ids=" ".join)
def test_command_that_is_timed_is_called_rightly(command: tuple[str, ...]) -> None:
    with CaptureQueriesContext(connection) as queries:
        call_as_asked(command)
    assert len(queries) > 0


@pytest.mark.slow
def test_tables_are_filled_as_triggers_and_indexes_want_it(scratch_url: str, scratch: Query) -> None:
    environment = {
        **os.environ,
        "DATABASE_URL": scratch_url,
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
    }

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command],
            env=environment,
            cwd=PROJECT_DIR,
            capture_output=True,
            text=True,
            check=False,
        )

    indexes = (
        "SELECT indexrelid::regclass::text, indisprimary FROM pg_index "
        "WHERE indrelid IN ('awa.jobs_hot'::regclass, 'awa.scheduled_jobs'::regclass) "
        "ORDER BY indrelid, indexrelid"
    )
    assert run("manage.py", "migrate", "--verbosity=0").returncode == 0
    before = scratch(indexes)
    with psycopg.connect(scratch_url, autocommit=True) as connection:
        fill(connection, hot=3000, deferred=4000, say=lambda _: None)
    assert scratch(indexes) == before
    [(hot, deferred, claims)] = scratch(
        "SELECT (SELECT count(*) FROM awa.jobs_hot), (SELECT count(*) FROM awa.scheduled_jobs), "
        "(SELECT count(*) FROM awa.job_unique_claims)"
    )
    assert (hot, deferred) == (3000, 4000)
    assert [(claims,)] == scratch("SELECT count(unique_key) FROM awa.jobs")
    assert claims > 0
    done = run("-m", "tests.size", "--reuse", "--rounds", "1", "--only", "queue size-rare")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of them not as they should be" in done.stdout
