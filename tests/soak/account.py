"""The account: the ledger, the histories and the rows held against each other. Violations are sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg

from awa_django.worker.holdings import LONGEST_HOLD
from tests.soak.handlers import ENDS
from tests.soak.history import UNFINISHED, History
from tests.soak.ledger import Enqueues, Run

CRON = "soak.every_minute"
UNIQUE = "soak.unique"
EVERY = timedelta(minutes=1)
# Between the database's clock and the line in the ledger.
TOLERANCE = 0.25
# What waits in a worker's hand is not told that somebody cancelled it; it starts, and ends stale.
CANCEL_TOLERANCE = LONGEST_HOLD + 0.5

Runs = dict[tuple[int, int], Run]
"""(job id, lease) -> what its handler wrote down."""


@dataclass(slots=True)
class Account:
    """What was counted, and what must not be."""

    figures: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def require(self, what: str, wrong: Iterable[object]) -> None:
        """Nothing of this kind may be; its number is a figure."""
        found = list(wrong)
        self.figures[what] = len(found)
        self.violations += [f"{what}: {each}" for each in found[:10]]


def check(
    account: Account,
    wanted: Enqueues,
    histories: dict[int, History],
    runs: Runs,
    connection: psycopg.Connection[Any],
) -> None:
    """All the checks. The load is over, the nemesis is quiet, and the workers have drained."""
    edges = [edge for history in histories.values() for edge in history.edges]
    account.figures |= {
        "jobs": len(histories),
        "acknowledged": len(wanted.committed),
        "refused": len(wanted.refused),
        "answers lost": len(wanted.lost),
        "runs": len(runs),
        "rescued or retried": sum(edge.is_now == "retryable" for edge in edges),
        "given back unstarted": sum((edge.was, edge.is_now) == ("running", "available") for edge in edges),
        "ends that came too late": sum(
            (end := histories[job_id].lease_end(lease)) is not None and run.ended_at > end.at + TOLERANCE
            for (job_id, lease), run in runs.items()
            if job_id in histories and run.ended_at is not None
        ),
    }
    account.figures |= {
        f"end: {end or 'deleted'}": count
        for end, count in sorted(Counter(history.end or "" for history in histories.values()).items())
    }
    producers = Counter(
        "the schedule" if each.kind == CRON else (each.token or "nobody").partition("-")[0]
        for each in histories.values()
    )
    account.figures |= {f"jobs by {name}": count for name, count in sorted(producers.items())}
    check_enqueues(account, wanted, histories)
    check_schedule(account, histories)
    check_ends(account, wanted, histories)
    check_unique(account, histories)
    check_runs(account, histories, runs)
    check_rows(account, histories, connection)


def check_enqueues(account: Account, wanted: Enqueues, histories: dict[int, History]) -> None:
    by_token: dict[str, list[int]] = {}
    for history in histories.values():
        if history.token is not None:
            by_token.setdefault(history.token, []).append(history.job_id)
    account.require(
        "lost", (job_id for token, job_id in wanted.committed.items() if by_token.get(token) != [job_id])
    )
    account.require("enqueued twice", (ids for ids in by_token.values() if len(ids) > 1))
    account.require("refused and there", (token for token in wanted.refused if token in by_token))
    account.require(
        "unknown token",
        (
            each.token
            for each in histories.values()
            if each.token is not None and each.token not in wanted.kinds and each.kind != CRON
        ),
    )
    account.require(
        "without token",
        (each.job_id for each in histories.values() if each.token is None),
    )
    account.require(
        "duplicates of no job",
        (f"{token} of {holder}" for token, holder in wanted.duplicates.items() if holder not in histories),
    )
    account.figures["made, the answer lost"] = sum(token in by_token for token in wanted.lost)


def check_schedule(account: Account, histories: dict[int, History]) -> None:
    """One job for each minute (two would be "enqueued twice"), from the first to the last."""
    fires = sorted(
        datetime.fromisoformat(each.token) for each in histories.values() if each.kind == CRON and each.token
    )
    account.require(
        "minutes that the schedule left out",
        (f"between {one} and {other}" for one, other in pairwise(fires) if other - one > EVERY),
    )


def check_ends(account: Account, wanted: Enqueues, histories: dict[int, History]) -> None:
    account.require(
        "finished twice",
        (f"job {each.job_id}" for each in histories.values() if len(each.completions) > 1),
    )
    account.require("illegal history", (wrong for each in histories.values() for wrong in each.wrong_edges()))
    account.require(
        "wrong end",
        (
            f"{each.kind} {each.job_id} ended {each.end}, not {sorted(map(str, allowed))}"
            for each in histories.values()
            if each.end not in (allowed := _allowed_ends(each, wanted))
        ),
    )
    account.require(
        "failed with attempts left",
        (
            f"{each.kind} {each.job_id} at attempt {edge.attempt} of {each.max_attempts}"
            for each in histories.values()
            for edge in each.edges
            if edge.is_now == "failed" and edge.attempt < each.max_attempts
        ),
    )
    account.require(
        "stuck",
        (
            f"{each.kind} {each.job_id} is {each.end}"
            for each in histories.values()
            if each.end in UNFINISHED and not _is_for_tomorrow(each, wanted)
        ),
    )


def _is_for_tomorrow(history: History, wanted: Enqueues) -> bool:
    return history.end == "scheduled" and history.token in wanted.later


def _allowed_ends(history: History, wanted: Enqueues) -> set[str | None]:
    """What it may be at the end, by its kind and by what was done to it on purpose."""
    if history.job_id in wanted.cancelled:
        return {"cancelled"}
    if history.job_id in wanted.deleted:
        return {None}
    allowed = set(ENDS[history.kind])
    if history.token in wanted.later:
        allowed = {"scheduled"}
    if wanted.unanswered[history.job_id]:
        allowed |= {"cancelled", None}
    return allowed


def check_unique(account: Account, histories: dict[int, History]) -> None:
    """No two unfinished jobs had one key, for no moment."""
    by_key: dict[str, list[tuple[float, float, int]]] = {}
    for each in histories.values():
        if each.kind == UNIQUE and each.unique_key is not None:
            by_key.setdefault(each.unique_key, []).append((*each.lifetime, each.job_id))
    account.figures["unique keys"] = len(by_key)
    account.require(
        "twins",
        (
            f"job {later} came {ended_at - came_at:.3f} s before the end of job {earlier}"
            for lifetimes in by_key.values()
            for (_, ended_at, earlier), (came_at, _, later) in pairwise(sorted(lifetimes))
            if came_at < ended_at
        ),
    )


def check_runs(account: Account, histories: dict[int, History], runs: Runs) -> None:
    starts: Counter[int] = Counter(job_id for (job_id, _), run in runs.items() if run.starts)
    account.require(
        "lease started twice", (key for key, run in runs.items() if len(run.starts) > 1 or len(run.pids) > 1)
    )
    claims = {
        (each.job_id, edge.run_lease)
        for each in histories.values()
        for edge in each.edges
        if edge.is_now == "running"
    }
    account.require("run without a claim", (key for key in runs if key not in claims))
    account.require(
        "more starts than attempts",
        (
            f"job {job_id}: {count} of {histories[job_id].max_attempts}"
            for job_id, count in starts.items()
            if job_id in histories and count > histories[job_id].max_attempts + histories[job_id].refund_count
        ),
    )
    account.require(
        "attempts above the limit",
        (
            f"job {each.job_id}: {edge.attempt} of {each.max_attempts}"
            for each in histories.values()
            for edge in each.edges
            if edge.attempt > each.max_attempts
        ),
    )
    account.require(
        "completed before its handler's return",
        (
            f"job {each.job_id} by lease {edge.run_lease}"
            for each in histories.values()
            for edge in each.completions
            if (run := runs.get((each.job_id, edge.run_lease))) is None
            or run.returned_at is None
            or run.returned_at > edge.at + TOLERANCE
        ),
    )
    late = [
        (run.starts[0] - end.at, job_id, lease, end.is_now)
        for (job_id, lease), run in runs.items()
        if run.starts
        and job_id in histories
        and (end := histories[job_id].lease_end(lease)) is not None
        and run.starts[0] > end.at + (CANCEL_TOLERANCE if end.is_now == "cancelled" else TOLERANCE)
    ]
    account.require(
        "started after the lease had ended",
        (
            f"{histories[job_id].kind} {job_id}, lease {lease}: {seconds:.1f} s after it became {is_now}"
            for seconds, job_id, lease, is_now in sorted(late, reverse=True)
        ),
    )


def check_rows(account: Account, histories: dict[int, History], connection: psycopg.Connection[Any]) -> None:
    rows = dict(connection.execute("SELECT id, state::text FROM awa.jobs").fetchall())
    ends = {job_id: each.end for job_id, each in histories.items() if each.end is not None}
    account.require("rows that are not as their history", rows.items() ^ ends.items())
    effects = Counter(job_id for (job_id,) in connection.execute("SELECT job_id FROM soak.effects"))
    account.require(
        "effects of atomic jobs not exactly once",
        (
            f"job {each.job_id} ({each.end}): {effects[each.job_id]}"
            for each in histories.values()
            if each.kind == "soak.atomic" and effects[each.job_id] != len(each.completions)
        ),
    )
    sessions = {token for (token,) in connection.execute("SELECT session_key FROM django_session")}
    with_row = {each.token for each in histories.values() if (each.token or "").startswith("orm")}
    account.require("jobs and rows of one transaction that are not both there", sessions ^ with_row)
    entries = connection.execute(
        "SELECT id, ARRAY(SELECT (entry ->> 'run_lease')::bigint FROM unnest(errors) AS entry) FROM awa.jobs"
    ).fetchall()
    account.require(
        "runs that failed or were lost without one entry of it each",
        (
            f"job {job_id}: {leases}"
            for job_id, leases in entries
            if not has_right_entries(histories[job_id], Counter(leases))
        ),
    )


def has_right_entries(history: History, entries: Counter[int]) -> bool:
    """One for each lease that ended in a failure, none for one that did not; a cancel may have one."""
    ends: dict[str | None, set[int]] = {}
    for edge in history.edges:
        if edge.was == "running":
            ends.setdefault(edge.is_now, set()).add(edge.run_lease)
    failed = ends.get("retryable", set()) | ends.get("failed", set())
    possible = failed | ends.get("cancelled", set())
    return failed <= entries.keys() <= possible and all(count == 1 for count in entries.values())
