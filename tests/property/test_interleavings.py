"""Every pair of operations on one job, in every order of their statements.

Both answers and the rows must be those of one of the two serial orders; or one of the two may have
stood back (a claim skips what is locked, a write through the view and a pruning find the job changed),
and then it says so and has changed nothing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from awa_django import Unique, operations
from awa_django.doctor import diagnose
from awa_django.enqueue import Enqueued, enqueue, enqueue_many
from awa_django.states import JobState
from awa_django.storage import prune, rescue
from awa_django.storage.claim import ClaimRequest, claim
from awa_django.storage.heartbeat import heartbeat, progress
from awa_django.storage.promote import promote
from awa_django.storage.prune import RetentionRule
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending, Outcome, Release
from awa_django.worker.rescuer import end_lost_runs
from awa_django.worker.settle import settle
from tests import handlers
from tests.conftest import Connect
from tests.fault_report import Observe
from tests.property.interleaving import Operation, Stepper
from tests.sessions import deadlocks

UNIQUE = Unique(args=True, states="unfinished_or_failed")
ITEM = handlers.nothing.using(unique=UNIQUE).item(1)
KIND = handlers.nothing.handler.kind
KEY = UNIQUE.key(KIND, queue="default", args={"number": 1}, at=None)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
STALE_AFTER = timedelta(seconds=90)
TABLES = ("awa.jobs_hot", "awa.scheduled_jobs")


@dataclass(frozen=True, slots=True)
class Verb:
    """An operation on the job. ``stands_back`` is its answer when it may do nothing for its rival's sake."""

    do: Callable[[int], object]
    stands_back: object = None
    skips: bool = False
    """It passes over what is locked, and never waits."""


def in_transaction(statement: Callable[[int], object]) -> Callable[[int], object]:
    """Hold its locks until a commit that is a step of its own."""

    def do(job_id: int) -> object:
        with transaction.atomic():
            return statement(job_id)

    return do


def by_sql(statement: str) -> Verb:
    def execute(job_id: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement, [job_id])
            return int(cursor.rowcount)

    return Verb(in_transaction(execute), stands_back=0)


def settling(outcome: Callable[[Attempt], Outcome]) -> Verb:
    """A finish as the completer writes it, on the driver's own connection."""

    def write(job_id: int) -> object:
        connection.ensure_connection()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")  # begins the transaction in which settle uses savepoints
        settlement = settle(connection.connection, [outcome(Attempt(job_id, 1))], worker="w/1")
        assert not settlement.blocked
        return sorted(settlement.done), sorted(settlement.released_queues)

    return Verb(in_transaction(write))


def _claim(job_id: int) -> object:
    request = ClaimRequest(limits={"default": 5}, total=5, worker="racer")
    return [(job.id, job.run_lease, job.attempt) for job in claim(connection, request)]


def _rescue(job_id: int) -> object:
    runs = rescue.lost_runs(connection, stale_after=STALE_AFTER, batch=10)
    settlement = end_lost_runs(connection.connection, runs, worker="leader")
    assert settlement.done == {run.id for run in runs}
    return [(run.id, run.run_lease, run.reason) for run in runs]


def _prune(job_id: int) -> object:
    rules = [RetentionRule(state, None, 3600.0) for state in ("completed", "failed", "cancelled")]
    return prune.prune(connection, rules, cursor=None, batch=10).pruned_count


def operating(operate: Callable[[int], operations.OperationResult]) -> Verb:
    """An operator's verb, whose statements are transactions of their own."""

    def do(job_id: int) -> object:
        result = operate(job_id)
        return result.changed, [(refusal.job_id, refusal.state, refusal.reason) for refusal in result.refused]

    return Verb(do)


def _entry(outcome: str) -> str:
    return json.dumps({"error": outcome, "outcome": outcome, "attempt": 1, "run_lease": 1, "worker": "w/1"})


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


VERBS: dict[str, Verb] = {
    "view update in place": by_sql("UPDATE awa.jobs SET priority = -5 WHERE id = %s"),
    "view update that moves": by_sql(
        "UPDATE awa.jobs SET state = CASE WHEN state = 'running' THEN 'retryable'::awa.job_state "
        "ELSE 'available' END, run_at = CASE WHEN state = 'scheduled' THEN now() "
        "ELSE now() + interval '1 hour' END WHERE id = %s"
    ),
    "view delete": by_sql("DELETE FROM awa.jobs WHERE id = %s"),
    "claim": Verb(in_transaction(_claim), stands_back=[], skips=True),
    "complete": settling(lambda attempt: Completion(attempt, "[1]")),
    "complete and delete": settling(lambda attempt: Completion(attempt, delete=True)),
    "fail": settling(lambda attempt: Ending(attempt, JobState.FAILED, _entry("failed"))),
    "cancel by handler": settling(lambda attempt: Ending(attempt, JobState.CANCELLED, _entry("cancelled"))),
    "retry by handler": settling(
        lambda attempt: Deferral(attempt, JobState.RETRYABLE, 3600.0, _entry("retried"))
    ),
    "snooze": settling(lambda attempt: Deferral(attempt, JobState.SCHEDULED, 3600.0, refund=True)),
    "release": settling(Release),
    "heartbeat": Verb(in_transaction(lambda job_id: sorted(heartbeat(connection, [Attempt(job_id, 1)])))),
    "progress": Verb(
        in_transaction(lambda job_id: sorted(progress(connection, {Attempt(job_id, 1): '{"percent": 7}'})))
    ),
    "promote": Verb(
        in_transaction(lambda _: sum(promote(connection, batch=10).values())), stands_back=0, skips=True
    ),
    "rescue": Verb(in_transaction(_rescue), stands_back=[], skips=True),
    "prune": Verb(in_transaction(_prune), stands_back=0),
    "cancel": operating(lambda job_id: operations.cancel(job_id, by="root")),
    "retry": operating(operations.retry),
    "run_now": operating(operations.run_now),
    "reschedule": operating(lambda job_id: operations.reschedule(job_id, soon())),
    "set_priority": operating(lambda job_id: operations.set_priority(job_id, 3)),
    "delete": operating(operations.delete),
    "enqueue": Verb(in_transaction(lambda _: enqueue(ITEM))),
    "enqueue many": Verb(lambda _: enqueue_many([ITEM])),
}
VIEW = ("view update in place", "view update that moves", "view delete")
ENQUEUE = ("enqueue", "enqueue many")
FINISH = ("complete", "complete and delete", "fail", "retry by handler", "snooze", "release")
# What has something to do with a job in this state.
FITTING = {
    "available": (*VIEW, *ENQUEUE, "claim", "cancel", "reschedule", "set_priority", "delete"),
    "running": (*VIEW, *FINISH, "enqueue", "cancel", "set_priority", "heartbeat", "progress", "rescue"),
    "scheduled": (*VIEW, *ENQUEUE, "promote", "run_now", "reschedule", "cancel"),
    "failed": (*VIEW, *ENQUEUE, "retry", "prune", "delete"),
}
STATES = (*FITTING, "retryable")


class Stage:
    """One job in a state, put back before each run; what became of it, without what differs by run."""

    def __init__(self, database: psycopg.Connection[Any], state: str) -> None:
        self._database = database
        self._state = state
        self.job_id = 0
        # Beyond every other number in a row.
        database.execute("SELECT setval('awa.jobs_id_seq', 1000000 + nextval('awa.jobs_id_seq'))")

    def reset(self) -> None:
        database = self._database
        for table in (*TABLES, "awa.job_unique_claims"):
            database.execute(f"DELETE FROM {table}")
        columns: dict[str, object] = {
            "kind": KIND,
            "args": '{"number": 1}',
            "state": self._state,
            "run_at": LONG_AGO,
            "created_at": LONG_AGO,
            "unique_key": KEY,
            "unique_states": UNIQUE.mask,
        }
        if self._state != "available":
            columns |= {"attempt": 1, "run_lease": 1, "worker": "w/1", "attempted_at": LONG_AGO}
        if self._state == "running":
            columns["heartbeat_at"] = LONG_AGO
        if self._state == "failed":
            columns["finalized_at"] = LONG_AGO
        table = TABLES[self._state in ("scheduled", "retryable")]
        names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
        row = database.execute(
            f"INSERT INTO {table} ({names}) VALUES ({marks}) RETURNING id", list(columns.values())
        ).fetchone()
        assert row is not None
        self.job_id = row[0]

    def outcome(self, answers: Sequence[object]) -> tuple[Any, ...]:
        """The rows, the claims and the answers, comparable with those of another run."""
        rows = []
        ids = {self.job_id: "job"}
        for table in TABLES:
            for (row,) in self._database.execute(f"SELECT to_jsonb(job) FROM {table} AS job ORDER BY id"):
                ids.setdefault(row["id"], f"new {len(ids)}")
                for entry in row["errors"]:
                    entry |= {name: bool(entry.get(name)) for name in ("at", "attempted_at")}
                rows.append((table, sorted((name, plain(value, ids)) for name, value in row.items())))
        claims = [
            ids.get(job_id, job_id)
            for (job_id,) in self._database.execute("SELECT job_id FROM awa.job_unique_claims")
        ]
        return plain(rows, ids), claims, *(plain(answer, ids) for answer in answers)


def plain(value: object, ids: dict[int, str]) -> object:
    """Ids by name, instants by what they are near."""
    match value:
        case bool():
            return value
        case int():
            return ids.get(value, value)
        case Enqueued():
            return ("enqueued", *(plain(each, ids) for each in (value.id, value.created, value.holder_id)))
        case str():
            for job_id, name in ids.items():
                value = value.replace(f"job {job_id}", name)
            try:
                instant = datetime.fromisoformat(value)
            except ValueError:
                return value
            if instant.tzinfo is None:  # the mask looks like a date
                return value
            hours = (instant - datetime.now(UTC)).total_seconds() / 3600
            return "long ago" if hours < -10 else f"in {round(hours * 10)} tenths of an hour"
        case list() | tuple():
            return [plain(each, ids) for each in value]
        case _:
            return value


def check_pair(stage: Stage, stepper: Stepper, first: str, second: str, seen: set[str]) -> tuple[int, int]:
    """Explore one pair; how many orders there were, and in how many one waited for the other."""
    a, b = VERBS[first], VERBS[second]

    def fresh(verb: Verb) -> Callable[[], Operation]:
        # The rows are put back when the first of the two is made.
        def make() -> Operation:
            if verb is a:
                stage.reset()
            return lambda: verb.do(stage.job_id)

        return make

    def serial(then: str) -> tuple[Any, ...]:
        stage.reset()
        job_id = stage.job_id
        run = stepper.run(lambda: a.do(job_id), lambda: b.do(job_id), "", then=then)
        return stage.outcome(run.answers)

    def alone(verb: Verb) -> tuple[Any, ...]:
        stage.reset()
        job_id = stage.job_id
        return stage.outcome([stepper.alone(lambda: verb.do(job_id))])

    allowed = [serial("ab"), serial("ba")]
    if a.stands_back is not None:
        rows, claims, answer = alone(b)
        allowed.append((rows, claims, a.stands_back, answer))
    if b.stands_back is not None:
        rows, claims, answer = alone(a)
        allowed.append((rows, claims, answer, b.stands_back))
    count = waited = 0
    for run in stepper.explore(fresh(a), lambda: lambda: b.do(stage.job_id)):
        outcome = stage.outcome(run.answers)
        assert outcome in allowed, explain(first, second, run.steps, outcome, allowed)
        for name, verb in (("a", a), ("b", b)):
            assert not (verb.skips and name in run.waited), f"{first} or {second} waits in {run.steps}"
        count += 1
        waited += bool(run.waited)
        if repr(outcome[:2]) not in seen:
            seen.add(repr(outcome[:2]))
            findings = [
                finding
                for finding in diagnose()
                if not finding.is_warning and finding.name != "stale_running"
            ]
            assert not findings, f"{first} and {second} as {run.steps}: {findings}"
    return count, waited


def explain(first: str, second: str, steps: str, outcome: object, allowed: Sequence[object]) -> str:
    lines = [f"{first} (a) and {second} (b) as {steps} ended as no serial order does:", repr(outcome)]
    return "\n".join([*lines, "allowed:", *map(repr, allowed)])


@pytest.fixture
def stepper(connect: Connect) -> Iterator[Stepper]:
    stepper = Stepper(connect())
    yield stepper
    stepper.close()


def explore(
    state: str, verbs: Sequence[str], stepper: Stepper, database: psycopg.Connection[Any], observe: Observe
) -> None:
    stage = Stage(database, state)
    seen: set[str] = set()
    before = deadlocks(database)
    pairs = list(itertools.combinations_with_replacement(verbs, 2))
    counts = [check_pair(stage, stepper, first, second, seen) for first, second in pairs]
    database.execute("SELECT pg_stat_force_next_flush()")
    assert deadlocks(database) == before
    orders, waits = (sum(each) for each in zip(*counts, strict=True))
    observe(
        f"{len(pairs)} pairs of {len(verbs)} operations in {orders} orders, {waits} of them with a wait: "
        f"{len(seen)} different ends, all as of a serial order, 0 deadlocks"
    )


@pytest.mark.fault("U19", injected="each pair of operations on one job, in every order of their statements")
@pytest.mark.parametrize("state", FITTING)
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
@pytest.mark.timeout(900)
def test_pairs_of_operations_end_as_in_a_serial_order(
    state: str, stepper: Stepper, connect: Connect, observe: Observe
) -> None:
    explore(state, FITTING[state], stepper, connect(), observe)


@pytest.mark.slow
@pytest.mark.fault("U19", injected="all operations in pairs on one job, in every order of their statements")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
@pytest.mark.timeout(900)
def test_all_pairs_of_operations_in_every_state(
    state: str, stepper: Stepper, connect: Connect, observe: Observe
) -> None:
    """Also those that find the job in a state that is not for them."""
    explore(state, list(VERBS), stepper, connect(), observe)
