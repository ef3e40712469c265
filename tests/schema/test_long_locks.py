"""No migration scans or rewrites a table of jobs under a lock; `make upgrade` measures it on a large one.

What the first four do is on tables that are new.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import PROJECT_DIR

FILES = sorted((PROJECT_DIR / "awa_django/migrations/sql").glob("*.sql"))
LATER = [path for path in FILES if path.name[:4] > "0004"]
JOBS = r"(?:ONLY\s+)?awa\.(?:jobs_hot|scheduled_jobs|job_unique_claims|jobs)\b"
LONG = re.compile(
    rf"""
      CREATE\s+(?:UNIQUE\s+)?INDEX\s+(?!CONCURRENTLY)[^;]*\sON\s+{JOBS}
    | REINDEX\s+(?!\(?CONCURRENTLY)[^;]*{JOBS}
    | ALTER\s+TABLE\s+{JOBS}[^;]*\b(?:
          TYPE | SET\s+(?:NOT\s+NULL|TABLESPACE|LOGGED|UNLOGGED)
        | ADD\s+(?:CONSTRAINT|CHECK|PRIMARY|UNIQUE|FOREIGN)(?![^;]*NOT\s+VALID)
        | VALIDATE
      )
    | (?:UPDATE|DELETE\s+FROM|CLUSTER|VACUUM\s+FULL|LOCK(?:\s+TABLE)?)\s+{JOBS}
    """,
    re.VERBOSE | re.IGNORECASE,
)


@pytest.mark.parametrize("path", LATER, ids=lambda path: path.name)
def test_migration_takes_no_long_lock(path: Path) -> None:
    without_comments = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
    assert LONG.findall(without_comments) == []


@pytest.mark.parametrize(
    "text",
    [
        "CREATE INDEX jobs_hot_x ON awa.jobs_hot (kind)",
        "ALTER TABLE awa.scheduled_jobs ADD COLUMN a text, ALTER COLUMN kind TYPE varchar",
        "ALTER TABLE awa.jobs_hot ADD CONSTRAINT c CHECK (attempt > 0)",
        "ALTER TABLE ONLY awa.jobs_hot ALTER kind SET NOT NULL",
        "UPDATE awa.jobs SET priority = 2",
    ],
)
def test_what_a_long_lock_is(text: str) -> None:
    assert LONG.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE INDEX CONCURRENTLY jobs_hot_x ON awa.jobs_hot (kind)",
        "ALTER TABLE awa.jobs_hot ADD CONSTRAINT c CHECK (attempt > 0) NOT VALID",
        "ALTER TABLE awa.job_unique_claims REPLICA IDENTITY DEFAULT",
        "CREATE INDEX kinds ON awa.job_kinds (kind); ALTER TABLE awa.jobs_hot ADD COLUMN a text",
    ],
)
def test_what_none_is(text: str) -> None:
    assert not LONG.search(text)
