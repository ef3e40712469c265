"""What the packaged SQL files have to be like, whatever they say."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from django.db import connection
from psycopg._queries import MAX_CACHED_STATEMENT_LENGTH

import awa_django
from awa_django.storage._sql import statement

PACKAGE = Path(awa_django.__file__).parent
STATEMENTS = sorted((PACKAGE / "storage" / "sql").rglob("*.sql"))
MIGRATIONS = sorted((PACKAGE / "migrations" / "sql").glob("*.sql"))
MOVE = re.compile(r"\bDELETE\s+FROM\s+awa\.(?:jobs_hot|scheduled_jobs)\b.*?\bRETURNING\b", re.DOTALL)
ARRIVAL = re.compile(
    r"\bINSERT\s+INTO\s+awa\.(?:jobs_hot|scheduled_jobs)\s*(?:\(([^)]*)\))?\s*SELECT\b", re.DOTALL
)


def code(path: Path) -> str:
    """The statement without its comments."""
    return re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))


def names_run() -> Counter[str]:
    """The names that storage functions give to fetch, fetch_prepared, run and statement."""
    found: Counter[str] = Counter()
    for path in (PACKAGE / "storage").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                position = {"fetch": 1, "fetch_prepared": 1, "run": 1, "statement": 0}.get(node.func.id)
                if position is not None:
                    found.update(
                        constant.value
                        for constant in ast.walk(node.args[position])
                        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
                    )
    return found


def test_each_statement_is_run_by_exactly_one_function() -> None:
    packaged = {
        path.relative_to(PACKAGE / "storage" / "sql").with_suffix("").as_posix()
        for path in STATEMENTS
        if path.parent.name != "doctor"
    }
    # The doctor's questions have a test of their own.
    assert names_run() - Counter(["doctor/"]) == Counter(packaged)


def test_each_migration_file_has_its_reverse_and_its_operation() -> None:
    forwards = {
        path.name.removesuffix(".sql") for path in MIGRATIONS if not path.name.endswith(".reverse.sql")
    }
    backwards = {
        path.name.removesuffix(".reverse.sql") for path in MIGRATIONS if path.name.endswith(".reverse.sql")
    }
    operations = Counter(
        name
        for path in (PACKAGE / "migrations").glob("0*.py")
        for name in re.findall(r'RunSQLFile\("(\w+)"\)', path.read_text(encoding="utf-8"))
    )
    assert forwards == backwards
    assert operations == Counter(forwards)


@pytest.mark.parametrize("path", STATEMENTS, ids=lambda path: path.stem)
def test_statement_does_not_go_through_the_view(path: Path) -> None:
    assert not re.search(r"\bawa\.jobs\b", code(path))


@pytest.mark.parametrize("room", ["storage", "worker"])
def test_no_code_on_the_hot_path_names_the_view(room: str) -> None:
    naming = [
        path.name
        for path in (PACKAGE / room).rglob("*.py")
        if re.search(r"\bawa\.jobs\b", path.read_text(encoding="utf-8"))
    ]
    assert naming == []


@pytest.mark.django_db
def test_each_move_between_the_tables_copies_every_column() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'awa.jobs_hot'::regclass "
            "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        every_column = [name for (name,) in cursor.fetchall()]
    moves = {
        path.stem: ARRIVAL.findall(code(path))
        for path in [*STATEMENTS, *MIGRATIONS]
        if MOVE.search(code(path))
    }
    moves = {name: arrivals for name, arrivals in moves.items() if arrivals}
    assert {"promote", "promote_one", "defer", "0004_view"} <= set(moves)
    for name, arrivals in moves.items():
        for columns in arrivals:
            # Without a list it is an expansion of NEW.*, which has them all.
            if columns:
                assert [column.strip() for column in columns.split(",")] == every_column, name
            else:
                assert name == "0004_view"


@pytest.mark.parametrize("path", STATEMENTS, ids=lambda path: path.stem)
def test_statement_says_what_it_does_and_casts_its_values(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("-- ")
    assert re.findall(r"%\(\w+\)s(?!::)", code(path)) == []


# Nobody waits for these: what folds counters, and what people ask for.
LONG = {"fold_stats", "list_jobs"}


def test_statements_begin_with_what_they_do_and_are_read_once() -> None:
    """A tracer names a span by the first word; psycopg reads a longer text anew each time."""
    for path in STATEMENTS:
        name = path.relative_to(PACKAGE / "storage" / "sql").with_suffix("").as_posix()
        text = statement(name)
        assert re.match(r"[A-Z]+\b", text), name
        assert len(text) <= MAX_CACHED_STATEMENT_LENGTH or name in LONG, (name, len(text))
