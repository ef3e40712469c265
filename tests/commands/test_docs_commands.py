"""docs/reference/commands.md names each key that ``--json`` prints, and each exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from django.db import connection

from tests.commands.conftest import Manage
from tests.commands.test_status import fill
from tests.conftest import PROJECT_DIR
from tests.factories import insert_job

PAGE = (PROJECT_DIR / "docs/reference/commands.md").read_text(encoding="utf-8")
SHARED, *PARTS = PAGE.split("\n## ")
SECTIONS = dict(part.split("\n", 1) for part in PARTS)
OURS = sorted(name for name, app in get_commands().items() if app == "awa_django" and name != "flush")
# What others have written stands below these keys.
THEIRS = {"args", "progress", "result", "metadata", "more"}
CODE = re.compile(r"\b(\d+) (?=[a-z])")


def keys(document: Any) -> Iterator[str]:
    """Each key of a document, at any depth."""
    if isinstance(document, list):
        for each in document:
            yield from keys(each)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield key
            if key not in THEIRS:
                yield from keys(value)


@pytest.fixture
def job_id(db: None) -> int:
    """A failed job with a history; workers, a paused queue and a schedule are beside it."""
    fill()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.cron_jobs (name, cron_expr, timezone, kind, queue) "
            "VALUES ('nightly', '0 3 * * *', 'UTC', 'a.b', 'mail')"
        )
    entry = {"at": "2026-01-01T10:00:00+00:00", "attempt": 1, "run_lease": 1, "outcome": "failed", "x": 1}
    return insert_job("failed", attempt=1, max_attempts=1, run_lease=1, errors=[entry])


VERBS = [
    "awa_autoscale",
    "awa_cron list",
    "awa_cron next nightly",
    "awa_cron pause nightly",
    "awa_cron resume nightly",
    "awa_cron run nightly",
    "awa_doctor",
    "awa_jobs list",
    "awa_jobs show ID",
    "awa_jobs why ID",
    "awa_jobs retry ID 999999999",
    "awa_queues list",
    "awa_queues pause mail --for 1h",
    "awa_queues resume mail",
    "awa_status",
]


@pytest.mark.parametrize("command", VERBS)
def test_each_key_of_a_document_is_named(command: str, manage: Manage, job_id: int) -> None:
    ended = manage(*command.replace("ID", str(job_id)).split(), "--json")
    found = set(keys(ended.document))
    assert len(found) > 1, ended
    section = SECTIONS[command.split()[0]]
    if command == "awa_status":
        section += SECTIONS["awa_queues"]  # "as awa_queues list"
    assert sorted(key for key in found if f"`{key}`" not in section) == []


def test_each_command_with_json_is_looked_at() -> None:
    def has_json(name: str) -> bool:
        parser = load_command_class("awa_django", name).create_parser("manage.py", name)
        return any("--json" in action.option_strings for action in parser._actions)

    assert {command.split()[0] for command in VERBS} == {name for name in OURS if has_json(name)}


@pytest.mark.parametrize("name", OURS)
def test_each_exit_code_is_in_a_table(name: str) -> None:
    told = str(load_command_class("awa_django", name).help).partition("Exit code")[2]
    section = SECTIONS[name] if name != "awa_worker" else (PROJECT_DIR / "docs/worker.md").read_text("utf-8")
    tables = re.findall(r"^\| (\d+) \|", SHARED + section, re.MULTILINE)
    assert set(CODE.findall(told)) <= set(tables)
    assert set(CODE.findall(told)) or name in {"awa_metrics", "awa_autoscale"}


def test_each_command_is_in_the_list_at_the_top() -> None:
    listed = re.findall(r"^\| \[`(\w+)`\]\(#\1\)", SHARED, re.MULTILINE)
    assert sorted(listed) == sorted([*OURS, "flush"])
    assert all("```\n$ python manage.py " in SECTIONS[name] for name in OURS)
