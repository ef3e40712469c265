"""How long a page takes, how many statements, and what the plan of each reads most."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil
from django.db import connection

from tests.size.pages import Page

BIG_TABLES = frozenset({"jobs_hot", "scheduled_jobs", "job_unique_claims"})
LONGEST_MS, MOST_STATEMENTS = 1000.0, 8
# Eight of the look, sent once in five seconds for all who look; session, user and permissions are four.
MOST_OF_DASHBOARD = 12
ROUNDS = 5
# A median over the goal is taken again so often: others may have been computing meanwhile.
SECOND_LOOKS = 2


@dataclass(frozen=True, slots=True)
class Timing:
    """One page. ``worst`` is the node of all its plans that met most rows."""

    page: str
    first: float
    median: float
    processor: float
    """Processor time of a call, here and in the server: what it takes where nobody else computes."""
    statements: int
    worst: str
    scanned: list[str] = field(default_factory=list)
    failure: str = ""
    is_long: bool = False

    @property
    def complaint(self) -> str:
        """What is wrong with it, empty if nothing is. Commands are for people: their time counts alone."""
        found = [self.failure] if self.failure else []
        if self.median > LONGEST_MS and not self.is_long:
            found.append(f"takes over {LONGEST_MS:.0f} ms")
        most = MOST_OF_DASHBOARD if self.page == "dashboard" else MOST_STATEMENTS
        if self.statements > most and not self.page.startswith("command "):
            found.append(f"sends over {most} statements")
        found += [f"scans {table}" for table in self.scanned]
        return "; ".join(found)


def measure(page: Page, *, rounds: int = ROUNDS) -> Timing:
    """Open the page once, then some times for the median, and once more for its plans."""
    try:
        before = _processor()
        with _counting() as sent:
            first = _timed(page.open)
        statements = len(sent)
        if page.is_long:
            return Timing(page.name, first, first, _processor() - before, statements, "", is_long=True)
        median, processor = _median(page, rounds)
        for _ in range(SECOND_LOOKS):
            if median > LONGEST_MS:
                median, processor = min((median, processor), _median(page, rounds))
        with _explaining() as plans:
            page.open()
    except Exception as exc:  # noqa: BLE001 - is told in the table, and the others go on
        return Timing(page.name, 0, 0, 0, 0, "", failure=f"{type(exc).__name__}: {exc}"[:200])
    nodes = [node for plan in plans for node in _nodes(plan)]
    scanned = {
        node["Relation Name"]
        for node in nodes
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG_TABLES
    }
    return Timing(page.name, first, median, processor, statements, _worst(nodes), sorted(scanned))


def _median(page: Page, rounds: int) -> tuple[float, float]:
    before = _processor()
    median = statistics.median(_timed(page.open) for _ in range(rounds))
    return median, (_processor() - before) / rounds


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def _processor() -> float:
    """Milliseconds of processor time so far, of this process and of its session in a server here."""
    pids = [os.getpid()]
    if connection.settings_dict["HOST"] in ("127.0.0.1", "localhost"):
        pids.append(connection.connection.info.backend_pid)
    spent = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(each.user + each.system for each in spent) * 1000


@contextmanager
def _counting() -> Iterator[list[str]]:
    sent: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        sent.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield sent


@contextmanager
def _explaining() -> Iterator[list[dict[str, Any]]]:
    """The plan of each statement that reads, with what it met; taken where it is sent, as it is set there."""
    plans: list[dict[str, Any]] = []

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        reads = sql.lstrip().startswith(("SELECT", "WITH", "(", "--")) and "set_config" not in sql
        if reads and any(table in sql for table in ("jobs", "claims")):
            with connection.connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", params)
                found = cursor.fetchone()[0]
            plans.append((json.loads(found) if isinstance(found, str) else found)[0]["Plan"])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield plans


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def _met(node: dict[str, Any]) -> int:
    rows = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
    return int(rows * node.get("Actual Loops", 1))


def _worst(nodes: list[dict[str, Any]]) -> str:
    reading = [node for node in nodes if "Relation Name" in node or "Index Name" in node]
    if not reading:
        return "none of these tables"
    node = max(reading, key=_met)
    where = node.get("Index Name") or node.get("Relation Name")
    return f"{node['Node Type']} {where}, {_met(node):,} rows"
