"""Look-alikes of functions, operators and tables in front of the search path change nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.fault_report import Observe
from tests.faults.roles import (
    SUFFIX,
    UNIQUE,
    Become,
    Installed,
    drain_as_worker,
)

# Each raises when it is called. The signatures are those of what our functions call.
LOOK_ALIKES = """
CREATE SCHEMA hostile;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
CREATE FUNCTION hostile.trap() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
"""
FUNCTIONS = {
    "now()": "timestamptz",
    "pg_notify(text, text)": "void",
    "power(double precision, double precision)": "double precision",
    "make_interval(secs double precision)": "interval",
    "nextval(regclass)": "bigint",
}
# Only behind the functions' pinned path: our statements, as any application's, use PostgreSQL's names.
POLYMORPHIC = {
    "get_bit(bit, integer)": "integer",
    "format(text, text, bigint)": "text",
    "format(text, bigint, bigint)": "text",
    "unnest(text[])": "SETOF text",
    "jsonb_build_object(text, timestamptz)": "jsonb",
}
OPERATORS = ("bigint", "timestamptz", "text", "smallint")


def trap(signature: str, returns: str) -> str:
    return (
        f"CREATE FUNCTION hostile.{signature} RETURNS {returns} LANGUAGE plpgsql "
        "AS $$ BEGIN RAISE 'hijacked'; END $$;"
    )


def trapped_operators(type_name: str) -> str:
    name = re.sub(r"\W", "_", type_name)
    return trap(f"compare_{name}({type_name}, {type_name})", "boolean") + "".join(
        f"CREATE OPERATOR hostile.{sign} "
        f"(LEFTARG = {type_name}, RIGHTARG = {type_name}, FUNCTION = hostile.compare_{name});"
        for sign in ("=", "<>", "<", ">", "<=", ">=")
    )


@pytest.fixture
def hostile(installed: Installed) -> Iterator[Installed]:
    """A schema with look-alikes, and temporary tables named like ours in each session that asks."""
    installed.execute("DROP SCHEMA IF EXISTS hostile CASCADE")
    installed.execute(LOOK_ALIKES)
    for signature, returns in FUNCTIONS.items():
        installed.execute(trap(signature, returns))
    for type_name in OPERATORS:
        installed.execute(trapped_operators(type_name))
    yield installed
    installed.execute("DROP SCHEMA hostile CASCADE")
    installed.execute(f"ALTER ROLE awa_worker{SUFFIX} RESET search_path")


@pytest.mark.fault(
    "F90", injected="now(), pg_notify, power, comparisons and temporary tables before pg_catalog"
)
@pytest.mark.parametrize("role", [None, "awa_operator"], ids=["superuser", "operator"])
def test_functions_take_nothing_from_the_callers_path(
    hostile: Installed, become: Become, role: str | None, observe: Observe
) -> None:
    for signature, returns in POLYMORPHIC.items():
        hostile.execute(trap(signature, returns))
    hostile.execute(trapped_operators("awa.job_state"))
    hostile.execute("INSERT INTO awa.waiters VALUES ('w', '{default}', now() + interval '1 hour')")
    with hostile.session() as server, hostile.session(role, "pg_temp, hostile, pg_catalog, awa") as session:
        if role is not None:
            server.execute(f"GRANT TEMPORARY ON DATABASE {hostile.name} TO {role}{SUFFIX}".encode())
        for table in ("jobs_hot", "scheduled_jobs", "job_unique_claims", "waiters", "jobs", "queue_meta"):
            session.execute(f"CREATE TEMP TABLE {table} (LIKE awa.{table} INCLUDING DEFAULTS)".encode())
        for called in ("now()", "pg_notify('a', 'b')", "power(1.0::float8, 2)", "1::bigint = 1::bigint"):
            with pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
                session.execute(f"SELECT {called}".encode())

        def write(statement: str) -> int:
            return session.execute(statement.encode()).rowcount

        matches = "OPERATOR(pg_catalog.=)"
        where = f"WHERE queue {matches} 'default'"
        assert write(f"INSERT INTO awa.jobs (kind, unique_key, unique_states) VALUES ('k', {UNIQUE})") == 1
        assert write("INSERT INTO awa.jobs (kind, run_at) VALUES ('later', '2999-01-01')") == 1
        with pytest.raises(psycopg.errors.UniqueViolation, match="holds it"):
            write(f"INSERT INTO awa.jobs (kind, unique_key, unique_states) VALUES ('k', {UNIQUE})")
        assert write(f"UPDATE awa.jobs SET priority = 3 {where}") == 2
        assert write(f"UPDATE awa.jobs SET run_at = '2999-01-01' {where} AND kind {matches} 'k'") == 1
        assert write(f"UPDATE awa.jobs SET state = 'cancelled' {where}") == 2
        assert write(f"UPDATE awa.jobs SET state = 'available', run_at = '2000-01-01' {where}") == 2
        assert session.execute("SELECT awa.wake(ARRAY['default'])").fetchone() == (True,)
        assert write(f"DELETE FROM awa.jobs {where} AND kind {matches} 'k'") == 1
        rows = server.execute("SELECT kind, state::text FROM awa.jobs").fetchall()
        assert rows == [("later", "available")]
        assert server.execute("SELECT count(*) FROM awa.job_unique_claims").fetchone() == (0,)
        for table in ("jobs_hot", "scheduled_jobs", "job_unique_claims", "waiters"):
            count = session.execute(f"SELECT count(*) FROM pg_temp.{table}".encode()).fetchone()
            assert count == (0,), table
    observe("insert, update, move, delete, conflict and wake-up are right; no look-alike is called")


@pytest.mark.acceptance
@pytest.mark.fault("F90", injected="a worker whose role has a schema of look-alikes first in its search_path")
def test_worker_with_look_alikes_in_its_path(
    hostile: Installed, become: Become, tmp_path: Path, observe: Observe
) -> None:
    hostile.execute(f"ALTER ROLE awa_worker{SUFFIX} SET search_path = hostile, public")
    ran = drain_as_worker(hostile, become, tmp_path)
    observe(f"{ran} jobs ended as they should")
