"""Vacuum: dead rows are seen, and gone afterwards."""

from __future__ import annotations

import pytest

from awa_django.storage.vacuum import DEFERRED, HOT, dead_rows, vacuum
from tests.conftest import Connect
from tests.factories import TABLES, insert_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


def test_vacuum_removes_the_dead_rows_of_its_table(connect: Connect) -> None:
    database = connect()
    for state in ("available", "scheduled"):
        for _ in range(3):
            insert_job(state)
    for table in TABLES:  # or the server's own vacuum may come first
        database.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    try:
        for table in TABLES:
            database.execute(f"DELETE FROM {table}")
        database.execute("SELECT pg_stat_force_next_flush()")
        database.execute("SELECT 1")
        assert dead_rows(database) == {HOT: 3, DEFERRED: 3}
        vacuum(database, HOT)
        assert dead_rows(database) == {HOT: 0, DEFERRED: 3}
        vacuum(database, DEFERRED)
        assert dead_rows(database) == {HOT: 0, DEFERRED: 0}
    finally:
        for table in TABLES:
            database.execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")
