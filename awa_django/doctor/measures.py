"""What is measured and not only asked: clock, NOTIFY, connections, and the plan of the real claim."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
from django.db import DatabaseError, connections

from awa_django.conf import get_settings
from awa_django.doctor.questions import Finding
from awa_django.storage import doctor as storage
from awa_django.storage import waiters
from awa_django.storage._sql import Connection
from awa_django.storage.claim import ClaimRequest, explain_claim
from awa_django.storage.insert import database_now
from awa_django.storage.queues import known_queues

# Seconds: below this it is how clocks are, and a slow answer.
CLOCK_WITHIN = 1.0
# Seconds that a notification may take, and after which it is given up.
NOTIFIED_WITHIN, NOTIFIED_AT_ALL = 1.0, 3.0
# The share of the server's queue of notifications: when it is full every NOTIFY fails.
NOTIFICATIONS_KEPT = 0.5
# Bytes: of a smaller table the planner may read all, and is right.
PLAN_MATTERS_FROM = 8 * 1024 * 1024
# The share of the connections that may be open.
CONNECTIONS_OPEN = 0.9
SEEN_WITHIN = timedelta(minutes=1)
QUEUES_CLAIMED = 8


@dataclass(slots=True)
class Measures:
    """What was measured; None where it could not be (a role without the right, a standby)."""

    clock_offset_seconds: float | None = None
    """How far this machine's clock is ahead of the database's; 0 within what an answer takes."""
    notify_seconds: float | None = None
    """How long a notification took from one connection to another; None too when none arrived."""
    notification_queue_usage: float | None = None
    claim_plan: str | None = None
    """``by index``, ``small table`` (not asked), or what is wrong with it."""
    connections_open: int | None = None
    connections_usable: int | None = None
    connections_of_workers: int | None = None
    """How many the live workers may open together, their handlers' included."""
    findings: list[Finding] = field(default_factory=list)


def measure(alias: str | None = None) -> Measures:
    """Measure on two new connections to the queue's database (or ``alias``), as workers open them.

    One of them leads to ``AWA["LISTEN_URL"]`` if that is set. It takes milliseconds, or some seconds
    where no notification arrives. Nothing is written.
    """
    using = get_settings().database if alias is None else alias
    measures = Measures()
    try:
        with _open(using) as connection:
            for look in (_look_at_clock, _look_at_server, _look_at_claim, _listen):
                try:
                    look(measures, connection, using)
                except (DatabaseError, psycopg.Error):
                    # A role may not, or a standby cannot: the others are measured all the same.
                    if not connection.is_usable():
                        raise
    except (DatabaseError, psycopg.Error) as exc:
        measures.findings.append(
            _warning(
                "W9",
                "no_connection",
                "another connection could not be opened or used, which workers need",
                _first_line(exc),
                "Is max_connections reached, or a limit of the role, the database or the pooler?",
            )
        )
    return measures


@contextmanager
def _open(using: str) -> Iterator[Any]:
    """A connection of our own to the alias, outside of any transaction and pool."""
    connection: Any = connections[using].copy()
    connection.settings_dict["OPTIONS"].pop("pool", None)
    with closing(connection):
        connection.ensure_connection()
        yield connection


def _look_at_clock(measures: Measures, connection: Connection, _: str) -> None:
    before = time.time()
    there = database_now(connection).timestamp()
    after = time.time()
    # Positive: this machine is ahead. While the answer was on its way no difference is certain.
    ahead = before - there if there < before else min(after - there, 0.0)
    measures.clock_offset_seconds = ahead
    if abs(ahead) > CLOCK_WITHIN:
        measures.findings.append(
            _warning(
                "W8",
                "clock_skew",
                "the clock of this machine differs from the database's",
                f"{abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}",
                "Let both follow the same time servers (NTP). Jobs go by the database's clock; a run_at that "
                "the project computes, and the times in logs, go by this one.",
            )
        )


def _look_at_server(measures: Measures, connection: Connection, _: str) -> None:
    server = storage.server_budget(connection, seen_within=SEEN_WITHIN)
    measures.connections_usable = server.usable
    measures.connections_open = server.open
    measures.connections_of_workers = server.of_workers
    measures.notification_queue_usage = server.notification_queue_usage
    if server.open >= CONNECTIONS_OPEN * server.usable or server.of_workers > server.usable:
        measures.findings.append(
            _warning(
                "W9",
                "connections",
                "connections of the server may run out",
                f"{server.open} of {server.usable} are open, the live workers may need {server.of_workers}",
                "Fewer --processes or --threads, a pooler in between, or a higher max_connections "
                "(docs/connections.md).",
            )
        )
    if server.notification_queue_usage > NOTIFICATIONS_KEPT:
        measures.findings.append(
            _warning(
                "W7",
                "notifications_kept",
                "the server's queue of notifications fills up; when it is full, enqueuing fails",
                f"{server.notification_queue_usage:.0%}",
                "A session listens inside a transaction that stays open: end it (W1 may name it).",
            )
        )


def _look_at_claim(measures: Measures, connection: Connection, _: str) -> None:
    if storage.server_budget(connection, seen_within=SEEN_WITHIN).hot_size < PLAN_MATTERS_FROM:
        measures.claim_plan = "small table"
        return
    queues = known_queues(connection, limit=QUEUES_CLAIMED) or ["default"]
    request = ClaimRequest(limits=dict.fromkeys(queues, 100), total=100, worker="awa_doctor")
    wrong = sorted(set(_wrong_in(explain_claim(connection, request))))
    measures.claim_plan = ", ".join(wrong) or "by index"
    if wrong:
        measures.findings.append(
            _warning(
                "W6",
                "claim_plan",
                "the claim does not go by its index, so it gets slower with every job in the table",
                measures.claim_plan,
                "ANALYZE awa.jobs_hot, see that jobs_hot_claim is there and valid, and that no setting of "
                "this role or database makes the planner avoid it (enable_indexscan, random_page_cost).",
            )
        )


def _wrong_in(node: dict[str, Any], *, chooses: bool = False) -> Iterator[str]:
    """What a plan of the claim should not have: below LockRows, where it chooses, and in its update."""
    kind = node["Node Type"]
    chooses = chooses or kind == "LockRows"
    # The index of a Bitmap Heap Scan is named by the node below it.
    reads = kind == "Bitmap Index Scan" or (
        node.get("Relation Name") == "jobs_hot" and kind.endswith("Scan") and kind != "Bitmap Heap Scan"
    )
    is_right = node.get("Index Name") == "jobs_hot_claim" if chooses else kind == "Tid Scan"
    if reads and not is_right:
        yield f"{kind} by {node['Index Name']}" if "Index Name" in node else kind
    if chooses and kind.endswith("Sort"):
        yield kind
    for child in node.get("Plans", ()):
        yield from _wrong_in(child, chooses=chooses)


def _listen(measures: Measures, connection: Connection, using: str) -> None:
    try:
        with _open_listener(using, get_settings().listen_url) as listener:
            measures.notify_seconds = _notify(connection, listener)
    except psycopg.OperationalError as exc:
        example = f"the connection that listens: {_first_line(exc)}"
    else:
        if measures.notify_seconds is None:
            example = f"none within {NOTIFIED_AT_ALL:g} s"
        elif measures.notify_seconds > NOTIFIED_WITHIN:
            example = f"after {measures.notify_seconds:.1f} s"
        else:
            return
    measures.findings.append(
        _warning(
            "W7",
            "notify",
            "notifications arrive late or not at all, so idle workers find jobs by polling alone",
            example,
            "A transaction pooler (pgbouncer) hands none over: let AWA['LISTEN_URL'] name a direct "
            "connection. Jobs are found all the same, within POLL_INTERVAL.",
        )
    )


def _notify(connection: Connection, listener: psycopg.Connection[Any]) -> float | None:
    """How long a notification takes from the one to the other; None when it does not arrive."""
    waiters.listen(listener)
    payload = f"awa_doctor {secrets.token_hex(8)}"
    began = time.monotonic()
    waiters.notify(connection, payload)
    for note in listener.notifies(timeout=NOTIFIED_AT_ALL):
        if note.payload == payload:
            return time.monotonic() - began
    return None


@contextmanager
def _open_listener(using: str, url: str | None) -> Iterator[psycopg.Connection[Any]]:
    if url is None:
        with _open(using) as connection:
            yield connection.connection
    else:
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            yield connection


def _first_line(exc: Exception) -> str:
    return next(iter(str(exc).strip().splitlines()), type(exc).__name__)


def _warning(invariant: str, name: str, title: str, example: str, advice: str) -> Finding:
    return Finding(
        invariant=invariant,
        name=name,
        title=title,
        count=1,
        examples=(example,),
        advice=advice,
        is_warning=True,
    )
