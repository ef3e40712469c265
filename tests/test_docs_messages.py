"""What docs/troubleshooting.md and docs/operations.md quote is what the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from awa_django.doctor import QUESTIONS
from awa_django.states import JobState
from awa_django.worker import leader
from tests.conftest import PROJECT_DIR
from tests.test_docs_pages import FENCE

TROUBLES, OPERATIONS = "docs/troubleshooting.md", "docs/operations.md"
# What a message has in place of what only its moment knows: "%s", "%.1f", "%(name)s", "{name}".
GAP = re.compile(r"%(?:\([a-z_]+\))?[-0-9.]*[a-z]|\{[^{}]*\}")
# The first cell of a table's row, where it is nothing but a quotation.
CELL = re.compile(r"^\| (?:`` ?(.+?) ?``|`([^`]+)`)(?: and .*)? \|", re.MULTILINE)
# What a logger or Django puts before a message.
BEFORE = re.compile(r"^(?:(?:WARNING|ERROR) [\w.]+: |CommandError: |\?: |HINT: )")
# A pattern of so few letters would be found anywhere.
SHORTEST = 10


def read(page: str) -> str:
    return (PROJECT_DIR / page).read_text(encoding="utf-8")


def quoted(page: str) -> list[str]:
    """Each message that the page quotes: in blocks of output, and in tables that name a message first."""
    found = []
    for _, language, mark, code in FENCE.findall(read(page)):
        if language in ("text", "console") and mark.strip() != "table":
            found += [line.strip() for line in code.splitlines() if line.strip() and not is_command(line)]
    for double, single in CELL.findall(FENCE.sub("", read(page))):
        if " " in (double or single) and not (double or single).startswith("python manage.py "):
            found.append(double or single)
    return [BEFORE.sub("", message) for message in found]


def is_command(line: str) -> bool:
    return line.startswith(("$ ", "python manage.py "))


def texts(path: Path) -> Iterator[str]:
    """The texts of a module; what is put into an f-string is a gap."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def patterns() -> list[re.Pattern[str]]:
    found = {text for path in (PROJECT_DIR / "awa_django").rglob("*.py") for text in texts(path)}
    return [
        re.compile(".*".join(map(re.escape, GAP.split(text))))
        for text in found
        if len(GAP.sub("", text)) >= SHORTEST
    ]


@pytest.mark.parametrize("page", [TROUBLES, OPERATIONS])
def test_what_is_quoted_is_said_by_the_code(page: str) -> None:
    messages = quoted(page)
    assert len(messages) >= (60 if page == TROUBLES else 1)
    known = patterns()
    unsaid = [message for message in messages if not any(each.search(message) for each in known)]
    assert unsaid == []


@pytest.mark.parametrize("page", [TROUBLES, OPERATIONS])
def test_each_id_exists(page: str) -> None:
    checks = read("docs/checks.md")
    assert [name for name in re.findall(r"awa\.[EWI]\d{3}", read(page)) if name not in checks] == []
    known = {question.invariant for question in QUESTIONS} | {"W6", "W7", "W8", "W9"}
    assert set(re.findall(r"(?<![\w.])[IW]\d{1,2}(?!\w)", read(page))) <= known


def test_every_alert_has_its_section() -> None:
    rules = read("ops/prometheus-alerts.yml")
    alerts = re.findall(r"- alert: (\w+)", rules)
    part = read(OPERATIONS).partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (\w+)$", part, re.MULTILINE) == alerts
    severities = re.findall(r"^### \w+\n\n\*(\w+)\.\*", part, re.MULTILINE)
    assert [severity.lower() for severity in severities] == re.findall(r"severity: (\w+)", rules)
    assert len(alerts) == len(severities) > 5


def test_what_stops_without_a_duty_is_said_of_each() -> None:
    section = read(OPERATIONS).partition("### AwaDutyUndone")[2].partition("###")[0]
    assert [duty for duty in leader.DUTIES if f"`{duty}`" not in section] == []


def test_the_sum_of_connections_is_right() -> None:
    part = read(OPERATIONS).partition("\n## Connections\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .+ \| (\d+) \|$", part, re.MULTILINE)
    assert sum(map(int, rows)) == int(re.findall(r"\| \*\*(\d+)\*\* \|", part)[0])
    of_workers, between = (hosts * (10 + 2 * (2 + threads + 1)) for hosts, threads in ((3, 8), (3, 4)))
    assert rows.count(str(of_workers)) == 2
    assert f"all {sum(map(int, rows)) - 2 * of_workers + 2 * between}." in part


def test_the_words_name_each_state_and_duty() -> None:
    words = dict(re.findall(r"^\| ([a-z ,]+) \| (.+) \|$", read("docs/words.md"), re.MULTILINE))
    states = set(JobState) - {JobState.WAITING_EXTERNAL}  # nothing uses it yet
    assert set(re.findall(r"`(\w+)`", words["state"])) == states
    assert words["duty"].endswith(": " + ", ".join(leader.DUTIES))
