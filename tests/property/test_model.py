"""The queue against its model: random verbs of producers, workers, leaders, operators and raw SQL.

Each example is one transaction that is rolled back at its end, so now() stands still and every
timestamp can be compared; time passes by moving the timestamps of rows. After each step both the
answer and all rows must be those of the model; every few steps the doctor must find nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

import psycopg
import pytest
from django.db import connection, transaction
from django.db.utils import Error as DatabaseError
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from awa_django import Cancel, Fixed, RetryAfter, Snooze, TerminalError, Unique, operations
from awa_django.conf import Retention
from awa_django.doctor import diagnose
from awa_django.enqueue import Enqueued, Item, enqueue, enqueue_many, find_holder
from awa_django.errors import JobNotFound, UniqueConflict
from awa_django.states import JobState
from awa_django.storage import finalize
from awa_django.storage.claim import ClaimRequest
from awa_django.storage.heartbeat import heartbeat, progress
from awa_django.storage.rows import Attempt, ClaimedJob, Completion, Outcome
from awa_django.worker import verdict
from awa_django.worker.claimer import Claimer
from awa_django.worker.promoter import Promoter
from awa_django.worker.pruner import Pruner
from awa_django.worker.rescuer import Rescuer
from awa_django.worker.settle import settle
from tests import handlers
from tests.property import model_operator as operator
from tests.property import model_settle
from tests.property.model import FIRST_DATE, Between, Entry, Model, ModelJob
from tests.property.model_operator import Refused
from tests.property.model_settle import End
from tests.property.nested import Nested, NestedSession
from tests.worker.conftest import AtWill

T = TypeVar("T")
GONE = ModelJob(
    id=0, kind="", state="cancelled", run_at=Between(FIRST_DATE, FIRST_DATE), created_at=FIRST_DATE
)
Candidate = tuple[Model, object]

KIND = handlers.nothing.handler.kind
QUEUES = ("a", "b")
HOUR = timedelta(hours=1)
WORKERS = ("w/1", "w/2")
LEADER = "leader"
STALE_AFTER = timedelta(seconds=90)
HOLD = timedelta(seconds=4)
KEPT = Retention(
    by_state={"completed": HOUR, "failed": 24 * HOUR, "cancelled": 24 * HOUR},
    by_queue={"b": {"completed": timedelta(0)}},
)
COLUMNS = tuple(ModelJob.__dataclass_fields__)
NAMES = ", ".join(COLUMNS)
SELECT = f"SELECT {NAMES} FROM awa.jobs_hot UNION ALL SELECT {NAMES} FROM awa.scheduled_jobs"

# Drawn small, so that collisions are the rule.
UNIQUE = (
    None,
    Unique(),
    Unique(args=True, states="kept"),
    Unique(args=True, states="unfinished_or_failed", on_conflict="raise"),
    Unique(args=("number",), queue=True, period=24 * HOUR),
)
# Those that change the holder of a key, and share keys with those above.
CHANGING = (
    Unique(on_conflict="replace"),
    Unique(args=True, on_conflict="reschedule"),
    Unique(queue=True, states="kept", on_conflict="replace_and_reschedule"),
)
KEYS = tuple(Unique(args=True).key(KIND, queue="a", args={"number": number}, at=None) for number in (0, 1))
# Masks of raw SQL: any, and often such as the engine's own moves collide with.
MASKS = st.sampled_from(
    ("11101001", "11111111", "11001000", "01000000", "00100000", "10011110", "00010110", "11011110")
)
WHEN = st.sampled_from((None, -HOUR, timedelta(0), timedelta(seconds=1), 30 * HOUR))
INDEX = st.integers(min_value=0, max_value=30)
INDEXES = st.lists(INDEX, min_size=1, max_size=4)
QUEUE = st.sampled_from(QUEUES)
NUMBER = st.sampled_from((0, 1))
PRIORITY = st.sampled_from((1, 2, 4))
NO_DOCTOR = {"stale_running", "overdue_running", "overdue_deferred"}  # time travel makes these


def item_strategy(unique: Sequence[Unique | None] = UNIQUE) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "number": NUMBER,
            "queue": QUEUE,
            "priority": PRIORITY,
            "unique": st.sampled_from(unique),
            "when": WHEN,
            "max_attempts": st.sampled_from((1, 2, 25)),
            "fixed": st.booleans(),
            "timeout": st.sampled_from((None, 30.0)),
        }
    )


WAYS = st.sampled_from(
    (
        "complete", "complete", "keep_result", "unstorable", "unstorable", "delete", "raise", "terminal",
        "retry_after", "snooze", "cancel", "release", "unknown_kind",
    )
)  # fmt: skip

WHEN_GIVEN = WHEN.filter(lambda when: when is not None)
SPOILT_INSERTS = ({"id": 7}, {"run_lease": 3}, {"priority": 103}, {"max_attempts": 0}, {"state": "running"})
SPOILT_UPDATES = (
    {"created_at": -HOUR}, {"run_lease": 9}, {"unique_key": bytes(16)}, {"kind": "other"}, {"priority": 103},
    {"attempt": 1002}, {"state": None}, {"queue": ""},
)  # fmt: skip


def spoilt(legal: st.SearchStrategy[dict[str, Any]], ways: Sequence[dict[str, Any]]) -> Any:
    """Now and then what must be refused."""
    return st.builds(lambda good, bad: {**good, **bad}, legal, st.sampled_from((*[{}] * 10, *ways)))


INSERTS = spoilt(
    st.fixed_dictionaries(
        {"kind": st.sampled_from((KIND, "sql.job")), "queue": QUEUE},
        optional={
            "state": st.sampled_from(
                ("available", "available", "scheduled", "retryable", "completed", "failed", "cancelled")
            ),
            "priority": st.sampled_from((-98, 102)),
            "run_at": st.sampled_from((-HOUR, timedelta(0), timedelta(seconds=1))),
            "attempt": st.sampled_from((0, 1, 3)),
            "max_attempts": st.sampled_from((1, 3)),
            "key": st.sampled_from(KEYS),
            "finalized_at": st.just(-HOUR),
            "tags": st.just(["sql"]),
        },
    ),
    SPOILT_INSERTS,
)
UPDATES = spoilt(
    st.fixed_dictionaries(
        {},
        optional={
            "state": st.sampled_from([*JobState][:-1]),
            "priority": st.sampled_from((-98, 1)),
            "run_at": WHEN_GIVEN,
            "attempt": st.sampled_from((0, 2)),
            "max_attempts": st.sampled_from((2, 25)),
            "tags": st.just(["updated"]),
            "metadata": st.just({"by": "hand"}),
            "queue": QUEUE,
            "args": st.just({"number": 9}),
            "progress": st.just({"percent": 9}),
            "result": st.just([1]),
            "heartbeat_at": st.just(-HOUR),
            "finalized_at": st.just(-HOUR),
        },
    ),
    SPOILT_UPDATES,
)


class Queue(RuleBasedStateMachine):
    """The verbs, each done to the database and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        with connection.cursor() as cursor:
            cursor.execute("SELECT now()")
            self.now: datetime = cursor.fetchone()[0]
        self.nested = Nested(connection.connection)
        self.worker = cast("psycopg.Connection[tuple[Any, ...]]", self.nested)
        session = NestedSession(self.nested)
        leader = AtWill(session)
        self.promoter = Promoter(session, leader, interval=HOUR, worker=LEADER)
        self.rescuer = Rescuer(session, leader, interval=HOUR, stale_after=STALE_AFTER, worker=LEADER)
        self.pruner = Pruner(session, leader, interval=HOUR, retention=KEPT)
        nothing = cast("Any", None)
        self.claimer = Claimer(
            session=session, worker="", options=nothing, slots=nothing, holdings=nothing, executor=nothing
        )
        self.model = Model(self.now)
        self.runs: list[tuple[ClaimedJob, str]] = []
        self.last_settled: dict[int, tuple[Attempt, str]] = {}
        self.steps = 0

    def teardown(self) -> None:
        try:
            if not connection.needs_rollback:  # else a step has failed already, and it says more
                self.is_sound()
        finally:
            transaction.set_rollback(True)
            self.atomic.__exit__(None, None, None)

    @initialize(
        drawn=st.lists(st.tuples(INSERTS, MASKS), min_size=3, max_size=6),
        items=st.lists(item_strategy(), min_size=1, max_size=4),
        claimed=st.booleans(),
    )
    def begin(
        self, drawn: list[tuple[dict[str, Any], str]], items: list[dict[str, Any]], claimed: bool
    ) -> None:
        """Something to do from the start."""
        for values, mask in drawn:
            self.insert_by_sql(values, mask)
        for item in items:
            self.enqueue(item)
        if claimed:
            self.claim({"a": 2, "b": 2}, 4, "w/1", ())

    # Producers

    def item(self, drawn: dict[str, Any]) -> Item:
        when = drawn["when"]
        job = handlers.nothing.using(
            queue=drawn["queue"],
            priority=drawn["priority"],
            unique=drawn["unique"],
            run_at=None if when is None else self.now + when,
            max_attempts=drawn["max_attempts"],
            retry=Fixed(wait=60) if drawn["fixed"] else None,
            timeout=drawn["timeout"],
        )
        return job.item(drawn["number"])

    def modelled(self, job_id: int, drawn: dict[str, Any]) -> ModelJob:
        unique: Unique | None = drawn["unique"]
        run_at = self.now + (drawn["when"] or timedelta(0))
        metadata: dict[str, Any] = {}
        if drawn["timeout"] is not None:
            metadata["awa:timeout"] = drawn["timeout"]
        if drawn["fixed"]:
            metadata["awa:retry"] = {"policy": "fixed", "wait": 60.0, "jitter": 0.0}
        args = {"number": drawn["number"]}
        return ModelJob(
            id=job_id,
            kind=KIND,
            queue=drawn["queue"],
            args=args,
            priority=drawn["priority"],
            max_attempts=drawn["max_attempts"],
            run_at=run_at,
            created_at=self.now,
            metadata=metadata,
            unique_key=None
            if unique is None
            else unique.key(KIND, queue=drawn["queue"], args=args, at=run_at),
            unique_states=None if unique is None else unique.mask,
        )

    @rule(drawn=item_strategy((*UNIQUE, *CHANGING)))
    def enqueue(self, drawn: dict[str, Any]) -> None:
        new = self.modelled(0, drawn)
        holder_id = None if new.unique_key is None else self.model.claims.get(new.unique_key)
        if new.unique_key is not None:
            assert find_holder(self.item(drawn)) == holder_id
        if holder_id is not None and drawn["unique"].on_conflict == "raise":
            with pytest.raises(UniqueConflict) as caught:
                enqueue(self.item(drawn))
            assert caught.value.holder_id == holder_id
            return
        answer = enqueue(self.item(drawn))
        if holder_id is not None and drawn["unique"] in CHANGING:
            state = JobState(self.model.jobs[holder_id].state)
            updated = self.model.change_holder(
                holder_id,
                new,
                replaces_args=drawn["unique"].replaces_args,
                reschedules=drawn["unique"].reschedules,
            )
            assert answer == Enqueued(holder_id, False, holder_id, updated, state)
            return
        if holder_id is not None:
            assert answer == Enqueued(holder_id, False, holder_id)
            return
        assert answer == Enqueued(answer.id)
        assert answer.id not in self.model.jobs
        self.model.insert(replace(new, id=answer.id))

    @rule(drawn=st.lists(item_strategy(), min_size=1, max_size=6))
    def enqueue_many(self, drawn: list[dict[str, Any]]) -> None:
        draft = self.model.copy()
        expected: list[int | None] = []  # the holder's id, or minus its place in the batch
        collides = False
        for place, each in enumerate(drawn, 1):
            new = self.modelled(-place, each)
            holder_id = None if new.unique_key is None else draft.claims.get(new.unique_key)
            expected.append(holder_id)
            if holder_id is None:
                draft.insert(new)
            elif each["unique"].on_conflict == "raise":
                collides = True
        try:
            answers = enqueue_many(self.item(each) for each in drawn)
        except UniqueConflict:
            assert collides
            return
        assert not collides
        assert len(answers) == len(drawn)
        ids = [answer.id for answer in answers if answer.created]
        assert len({*ids, *self.model.jobs}) == len(ids) + len(self.model.jobs)
        for each, answer, holder in zip(drawn, answers, expected, strict=True):
            if holder is None:
                assert answer == Enqueued(answer.id)
                self.model.insert(self.modelled(answer.id, each))
            else:
                holder_id = holder if holder > 0 else answers[-holder - 1].id
                assert answer == Enqueued(holder_id, False, holder_id)

    @precondition(lambda self: self.model.jobs)
    @rule(index=INDEX)
    def read(self, index: int) -> None:
        job = self.model.jobs[self.ids([index])[0]]
        if job.kind != KIND:
            with pytest.raises(JobNotFound):
                handlers.nothing.get(job.id)
            return
        snapshot = handlers.nothing.get(job.id)
        assert (snapshot.state, snapshot.attempt, snapshot.run_at) == (job.state, job.attempt, job.run_at)
        assert (snapshot.args, snapshot.progress) == (job.args, job.progress)

    # Workers

    @rule(
        limits=st.dictionaries(QUEUE, st.integers(1, 5), min_size=1),
        total=st.integers(1, 8),
        worker=st.sampled_from(WORKERS),
        excluded=st.sampled_from(((), ("sql.job",))),
    )
    def claim(self, limits: dict[str, int], total: int, worker: str, excluded: tuple[str, ...]) -> None:
        request = ClaimRequest(
            limits=limits, total=total, worker=worker, hold=HOLD.total_seconds(), excluded_kinds=excluded
        )
        best = {
            queue: [job.id for job in self.model.candidates(queue, excluded)][:limit]
            for queue, limit in limits.items()
        }
        wanted = [job_id for queue in limits for job_id in best[queue]][:total]
        jobs = self.claimer._claim(self.worker, request)

        def claimed(takers_first: bool) -> Candidate:
            draft = self.model.copy()
            ids = draft.claim(wanted, worker, HOLD, takers_first=takers_first)
            rows = sorted((draft.jobs[job_id] for job_id in ids), key=lambda row: row.id)
            return draft, [(row.id, row.run_lease, row.attempt, row.queue) for row in rows]

        self.agree(
            [claimed(False), claimed(True)],
            sorted((job.id, job.run_lease, job.attempt, job.queue) for job in jobs),
        )
        self.runs += [(job, worker) for job in jobs]

    def drawn_runs(self, indexes: Sequence[int]) -> list[tuple[ClaimedJob, str]]:
        """Some of the runs: mostly those of jobs that run now, be it under this lease or a later one."""
        live = [run for run in self.runs if self.model.jobs.get(run[0].id, GONE).state == "running"]
        pool = live[-6:] if live and min(indexes) < 24 else self.runs[-6:]
        chosen = {index % len(pool) for index in indexes} if pool else set()
        return [pool[place] for place in sorted(chosen)]

    def end(self, run: ClaimedJob, worker: str, way: str) -> tuple[Outcome, End]:
        """The outcome as the executor would make it, and the model's idea of it."""
        if run.attempt > run.max_attempts and way != "release":
            return verdict.attempts_used_up(run, worker=worker), self.failure(run, worker, "failed")
        outcome: Outcome | None
        match way:
            case "complete" | "delete":
                outcome = verdict.completed(run, None, delete=way == "delete")
                return outcome, End(run.id, run.run_lease, way)
            case "keep_result":
                return verdict.completed(run, "[1]", delete=False), End(
                    run.id, run.run_lease, way, result=[1]
                )
            case "unstorable":
                return Completion(run.key, '"\\u0000"'), End(run.id, run.run_lease, way)
            case "release":
                return verdict.release(run), End(run.id, run.run_lease, way)
            case "unknown_kind":
                seen = json.loads(run.metadata or "{}").get("awa:unknown_kind", {"count": 0})["count"]
                run_at = self.now + timedelta(seconds=min(5 * 2**seen, 300))
                return verdict.unknown_kind(run), End(run.id, run.run_lease, way, run_at)
            case "snooze":
                outcome = verdict.returned(run, Snooze(5), worker=worker)
                assert outcome is not None
                return outcome, End(run.id, run.run_lease, way, self.now + timedelta(seconds=5))
            case "cancel":
                outcome = verdict.returned(run, Cancel("no"), worker=worker)
                assert outcome is not None
                entry = Entry("cancelled", run.attempt, run.run_lease, worker)
                return outcome, End(run.id, run.run_lease, "cancel", entry=entry)
            case "retry_after":
                outcome = verdict.returned(run, RetryAfter(7, "busy"), worker=worker)
                assert outcome is not None
                return outcome, self.failure(run, worker, None, self.now + timedelta(seconds=7))
            case "terminal":
                outcome = verdict.raised(run, TerminalError("no"), worker=worker)
                return outcome, self.failure(run, worker, "failed")
            case _:
                return verdict.raised(run, ValueError("a\x00b"), worker=worker), self.failure(
                    run, worker, None
                )

    def failure(
        self, run: ClaimedJob, worker: str, outcome: str | None, run_at: datetime | Between | None = None
    ) -> End:
        """``outcome`` None: by the attempt check."""
        attempt = min(run.attempt, run.max_attempts)
        if outcome is None and run.attempt < run.max_attempts:
            job = ModelJob(
                id=run.id,
                kind=run.kind,
                attempt=run.attempt,
                metadata=json.loads(run.metadata or "{}"),
                run_at=self.now,
                created_at=self.now,
            )
            entry = Entry("retried", attempt, run.run_lease, worker)
            return End(run.id, run.run_lease, "retry", run_at or self.model.backoff(job), entry)
        return End(run.id, run.run_lease, "fail", entry=Entry("failed", attempt, run.run_lease, worker))

    @rule(worker=st.sampled_from(WORKERS), indexes=INDEXES, ways=st.lists(WAYS, min_size=4, max_size=4))
    def work(self, worker: str, indexes: list[int], ways: list[str]) -> None:
        """Claim what there is, and end some of it."""
        self.claim({"a": 4, "b": 4}, 6, worker, ())
        if self.runs:
            self.settle(indexes, ways)

    @precondition(lambda self: self.runs)
    @rule(worker=st.sampled_from(WORKERS), indexes=INDEXES, way=st.sampled_from(("release", "retry_after")))
    def run_again(self, worker: str, indexes: list[int], way: str) -> None:
        """Another worker takes what the first one gave back: the old lease is stale, the job runs."""
        runs = self.drawn_runs(indexes)
        self.settle(indexes, [way] * 4)
        for run, _ in runs:
            self.pass_time(run.id, "run_at", HOUR)
        self.promote([])
        self.claim({"a": 4, "b": 4}, 6, worker, ())

    @precondition(lambda self: self.runs)
    @rule(indexes=INDEXES, ways=st.lists(WAYS, min_size=4, max_size=4))
    def settle(self, indexes: list[int], ways: list[str]) -> None:
        runs = self.drawn_runs(indexes)
        worker = runs[0][1]
        pairs = [self.end(run, worker, way) for (run, _), way in zip(runs, ways, strict=False)]

        def settled(takers_first: bool) -> Candidate:
            draft = self.model.copy()
            answer = model_settle.settle(
                draft, [end for _, end in pairs], worker=worker, takers_first=takers_first
            )
            return draft, (answer.done, answer.released_queues)

        settlement = settle(self.worker, [outcome for outcome, _ in pairs], worker=worker)
        assert not settlement.blocked
        self.agree([settled(False), settled(True)], (settlement.done, settlement.released_queues))
        for outcome, end in pairs:
            if end.job_id in settlement.done and end.run_lease == self.lease_of(end, settlement.done):
                self.last_settled[end.job_id] = (outcome.attempt, worker)

    def lease_of(self, end: End, done: set[int]) -> int:
        """The newest lease of the job among the runs: of two runs of one job at most this one was live."""
        return max(run.run_lease for run, _ in self.runs if run.id == end.job_id)

    @precondition(lambda self: self.runs)
    @rule(index=INDEX)
    def send_again(self, index: int) -> None:
        """The acknowledgement got lost: the second look-up must know what the first send did."""
        [(run, worker)] = self.drawn_runs([index])
        gone_is_settled = run.id not in self.model.jobs
        answer = finalize.settled(self.worker, [run.key], worker=worker, gone_is_settled=[gone_is_settled])
        if self.last_settled.get(run.id) == (run.key, worker):
            assert answer == {run.id}
        elif self.model.running(run.id, run.run_lease):
            assert answer == set()

    @precondition(lambda self: self.runs)
    @rule(indexes=INDEXES, percent=st.sampled_from((None, 5, 50)))
    def beat(self, indexes: list[int], percent: int | None) -> None:
        """A heartbeat, or a report of progress."""
        attempts = [run.key for run, _ in self.drawn_runs(indexes)]
        live = {attempt for attempt in attempts if self.model.running(*attempt)}
        changes: dict[str, Any] = (
            {"heartbeat_at": self.now} if percent is None else {"progress": {"percent": percent}}
        )
        for attempt in live:
            self.model.put(replace(self.model.jobs[attempt.job_id], **changes))
        if percent is None:
            assert heartbeat(self.worker, attempts) == live
        else:
            reports = {attempt: json.dumps({"percent": percent}) for attempt in attempts}
            assert progress(self.worker, reports) == {attempt.job_id for attempt in live}

    # The leader

    @rule(indexes=INDEXES)
    def promote(self, indexes: list[int]) -> None:
        for job_id in self.ids(indexes) if indexes else ():
            self.pass_time(job_id, "run_at", 40 * HOUR)

        def promoted(takers_first: bool) -> Candidate:
            draft = self.model.copy()
            draft.promote(LEADER, takers_first=takers_first)
            return draft, None

        self.promoter.tick()
        self.agree([promoted(False), promoted(True)], None)

    @rule(indexes=INDEXES, overdue=st.booleans())
    def rescue(self, indexes: list[int], overdue: bool) -> None:
        for run, _ in self.drawn_runs(indexes):
            self.pass_time(run.id, "deadline_at" if overdue else "heartbeat_at", STALE_AFTER + HOLD)

        ends = []
        for job, how in self.model.lost(STALE_AFTER):
            entry = Entry(
                how, min(job.attempt, job.max_attempts), job.run_lease, job.worker or LEADER, LEADER
            )
            if job.attempt < job.max_attempts:
                ends.append(End(job.id, job.run_lease, "retry", self.model.backoff(job), entry))
            else:
                ends.append(End(job.id, job.run_lease, "fail", entry=entry))

        def rescued(takers_first: bool) -> Candidate:
            draft = self.model.copy()
            model_settle.settle(draft, ends, worker=LEADER, takers_first=takers_first)
            return draft, None

        self.rescuer.tick()
        self.agree([rescued(False), rescued(True)], None)
        for end in ends:
            self.last_settled.pop(end.job_id, None)

    @rule(indexes=INDEXES, by=st.sampled_from((timedelta(seconds=1), 2 * HOUR, 200 * HOUR)))
    def prune(self, indexes: list[int], by: timedelta) -> None:
        for job_id in self.ids(indexes):
            self.pass_time(job_id, "finalized_at", by)
        self.pruner.tick()
        self.model.prune(KEPT.of)

    def pass_time(self, job_id: int, column: str, by: timedelta) -> None:
        """For this timestamp of this row only; the rest of the world stands still."""
        job = self.model.jobs.get(job_id)
        if job is None or getattr(job, column) is None:
            return
        self.model.put(replace(job, **{column: getattr(job, column) - by}))
        table = "scheduled_jobs" if job.is_deferred else "jobs_hot"
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE awa.{table} SET {column} = {column} - %s::interval WHERE id = %s", [str(by), job_id]
            )

    # Operators

    @rule(
        indexes=INDEXES,
        verb=st.sampled_from(
            ("cancel", "retry", "retry", "run_now", "delete", "reschedule", "set_priority", "move_queue")
        ),
        ghost=st.booleans(),
        when=WHEN,
        queue=QUEUE,
    )
    def operate(self, indexes: list[int], verb: str, ghost: bool, when: timedelta | None, queue: str) -> None:
        ids = [*self.ids(indexes), *([2**62] if ghost else [])]
        run_at = self.now + (when or HOUR)
        match verb:
            case "cancel":
                result = operations.cancel(ids, by="root", reason="no")
                self.operated(result, ids, unended, lambda model: operator.cancelled(model, "root"))
            case "retry":
                result = operations.retry(ids)
                self.operated(result, ids, lambda job: job.state in ("failed", "cancelled"), operator.retried)
            case "run_now":
                self.operated(operations.run_now(ids), ids, lambda job: job.is_deferred, operator.run_now)
            case "delete":
                result = operations.delete(ids)
                self.operated(result, ids, lambda job: job.state != "running", lambda _: lambda job: None)
            case "reschedule":
                self.operated(
                    operations.reschedule(ids, run_at),
                    ids,
                    lambda job: job.is_deferred or (job.state == "available" and run_at > self.now),
                    lambda _: operator.rescheduled(run_at),
                )
            case "set_priority":
                result = operations.set_priority(ids, 3)
                self.operated(result, ids, unended, lambda _: lambda job: replace(job, priority=3))
            case _:
                self.operated(
                    operations.move_queue(ids, queue),
                    ids,
                    lambda job: job.state in operator.WAITING and job.unique_key is None,
                    lambda _: lambda job: replace(job, queue=queue),
                )

    def operated(
        self,
        result: operations.OperationResult,
        ids: Sequence[int],
        may: Callable[[ModelJob], bool],
        become: Callable[[Model], Callable[[ModelJob], ModelJob | None]],
    ) -> None:
        def candidate(takers_first: bool) -> Candidate:
            draft = self.model.copy()
            answer = operator.operate(draft, ids, may, become(draft), takers_first=takers_first)
            return draft, (answer.changed, answer.refused)

        refused = {}
        for refusal in result.refused:
            _, held, holder = refusal.reason.partition("its unique key is held by job ")
            refused[refusal.job_id] = (refusal.state, int(holder) if held else None)
            assert refusal.reason
            assert (refusal.state is None) == (refusal.reason == "does not exist")
        assert all(first < second for first, second in zip(result.changed, result.changed[1:], strict=False))
        self.agree([candidate(False), candidate(True)], ([*result.changed], refused))

    @rule(queue=QUEUE, until=st.sampled_from((None, -HOUR, HOUR)), resume=st.booleans())
    def pause_or_resume(self, queue: str, until: timedelta | None, resume: bool) -> None:
        if resume:
            result = operations.resume_queue(queue)
            assert not result.paused
            assert result.changed == (queue in self.model.paused)
            self.model.paused.pop(queue, None)
            return
        ends_at = None if until is None else self.now + until
        same = queue in self.model.paused and self.model.paused[queue] == ends_at
        result = operations.pause_queue(queue, by="root", until=ends_at)
        assert result.paused
        assert result.changed == (not same or not self.model.is_paused(queue))
        self.model.paused[queue] = ends_at

    # Raw SQL

    @rule(drawn=INSERTS, mask=MASKS)
    def insert_by_sql(self, drawn: dict[str, Any], mask: str) -> None:
        values = {name: self.instant(value) for name, value in drawn.items()}
        if values.get("state") == "completed":
            values.pop("attempt", None)  # above max_attempts the doctor would say so
        if "key" in values:
            values |= {"unique_key": values.pop("key"), "unique_states": mask}
        names = ", ".join(values)
        marks = ", ".join(["%s"] * len(values))
        statement = f"INSERT INTO awa.jobs ({names}) VALUES ({marks}) RETURNING {NAMES}"
        draft = self.model.copy()
        placeholder = 0
        try:
            new = operator.insert_through_view(draft, placeholder, self.as_rows(values))
            holder_id = None if new.held_key is None else draft.claims.get(new.held_key)
            if holder_id is not None:
                raise Refused(operator.UNIQUE_VIOLATION)
        except Refused as exc:
            self.refused(statement, list(values.values()), exc.sqlstate)
            return
        [row] = self.execute(statement, list(values.values()))
        assert row.id > max(self.model.jobs, default=0)
        assert row == replace(new, id=row.id)
        self.model.put(row)

    @precondition(lambda self: self.model.jobs)
    @rule(index=INDEX, drawn=UPDATES)
    def update_by_sql(self, index: int, drawn: dict[str, Any]) -> None:
        [job_id] = self.ids([index])
        old = self.model.jobs[job_id]
        values = {name: self.instant(value) for name, value in drawn.items()}
        if old.state in ("running", "completed"):
            # What the doctor rightly calls a hand of somebody else's.
            values.pop("attempt", None)
            values.pop("max_attempts", None)
        if old.attempt > old.max_attempts and values.get("state") == "completed":
            values["state"] = "failed"
        if not values:
            return
        sets = ", ".join(f"{name} = %s" for name in values)
        parameters = [self.adapted(value) for value in values.values()]
        statement = f"UPDATE awa.jobs SET {sets} WHERE id = %s RETURNING {NAMES}"
        try:
            new = operator.update_through_view(self.model, old, self.as_rows(values))
            if new.held_key is not None and self.model.claims.get(new.held_key, job_id) != job_id:
                raise Refused(operator.UNIQUE_VIOLATION)
        except Refused as exc:
            self.refused(statement, [*parameters, job_id], exc.sqlstate)
            return
        assert self.execute(statement, [*parameters, job_id]) == [new]
        self.model.put(new)
        self.last_settled.pop(job_id, None)

    @rule(queue=QUEUE)
    def update_many_by_sql(self, queue: str) -> None:
        statement = f"UPDATE awa.jobs SET tags = tags || '{{many}}' WHERE queue = %s RETURNING {NAMES}"
        changed = [
            replace(job, tags=(*job.tags, "many")) for job in self.model.jobs.values() if job.queue == queue
        ]
        if any(len(job.tags) > 20 for job in changed):
            return
        rows = self.execute(statement, [queue])
        assert sorted(rows, key=lambda row: row.id) == sorted(changed, key=lambda row: row.id)
        for job in changed:
            self.model.put(job)

    @precondition(lambda self: self.model.jobs)
    @rule(index=INDEX)
    def delete_by_sql(self, index: int) -> None:
        [job_id] = self.ids([index])
        assert [
            row.id for row in self.execute(f"DELETE FROM awa.jobs WHERE id = %s RETURNING {NAMES}", [job_id])
        ] == [job_id]
        self.model.remove(job_id)

    # Comparisons

    @invariant()
    def rows_agree(self) -> None:
        self.steps += 1
        rows = self.rows()
        assert rows == self.adopt_instants(self.model, rows)
        assert self.claims() == self.model.claims
        if self.steps % 16 == 0:
            self.is_sound()

    def agree(self, candidates: Sequence[Candidate], answer: object) -> None:
        """Rows and answer are those of one of the candidates, which becomes the model."""
        rows = self.rows()
        for model, expected in candidates:
            if self.adopt_instants(model, rows) == rows and expected == answer:
                self.forget_changed(model)
                self.model.adopt(model)
                return
        model, expected = candidates[0]
        assert answer == expected
        assert rows == model.jobs

    def forget_changed(self, model: Model) -> None:
        for job_id in [*self.last_settled]:
            if model.jobs.get(job_id) != self.model.jobs.get(job_id):
                del self.last_settled[job_id]

    def adopt_instants(self, model: Model, rows: dict[int, ModelJob]) -> dict[int, ModelJob]:
        """The model's jobs, with the instants of the rows where these are within a known jitter."""
        for job_id, job in list(model.jobs.items()):
            row = rows.get(job_id)
            if row is not None and isinstance(job.run_at, Between):
                assert isinstance(row.run_at, datetime)
                if job.run_at.earliest <= row.run_at <= job.run_at.latest:
                    model.jobs[job_id] = replace(job, run_at=row.run_at)
        return dict(sorted(model.jobs.items()))

    def is_sound(self) -> None:
        findings = [
            finding for finding in diagnose() if finding.name not in NO_DOCTOR and not finding.is_warning
        ]
        assert not findings, "\n".join(map(str, findings))

    def rows(self) -> dict[int, ModelJob]:
        rows = self.execute(SELECT)
        assert len({row.id for row in rows}) == len(rows), "a job is in both tables"
        return {row.id: row for row in sorted(rows, key=lambda row: row.id)}

    def claims(self) -> dict[bytes, int]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT unique_key, job_id FROM awa.job_unique_claims")
            return {bytes(key): job_id for key, job_id in cursor.fetchall()}

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[ModelJob]:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, [self.adapted(value) for value in parameters])
            return [as_job(row) for row in cursor.fetchall()]

    def refused(self, statement: str, parameters: Sequence[object], sqlstate: str) -> None:
        with pytest.raises(DatabaseError) as caught:
            self.execute(statement, parameters)
        assert getattr(caught.value.__cause__, "sqlstate", None) == sqlstate, str(caught.value)

    def ids(self, indexes: Sequence[int]) -> list[int]:
        """Some jobs of the model, newest first; a job that never was when there is none."""
        known = sorted(self.model.jobs, reverse=True)
        return [known[index % len(known)] for index in indexes] if known else [2**61]

    def instant(self, value: T) -> T | datetime:
        return self.now + value if isinstance(value, timedelta) else value

    @staticmethod
    def as_rows(values: dict[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if name == "tags" else value for name, value in values.items()}

    @staticmethod
    def adapted(value: Any) -> Any:
        if isinstance(value, dict) or (isinstance(value, list) and value and not isinstance(value[0], str)):
            return json.dumps(value)
        return value


def unended(job: ModelJob) -> bool:
    return not job.is_terminal


def as_job(row: Sequence[Any]) -> ModelJob:
    values = dict(zip(COLUMNS, row, strict=True))
    for name in ("args", "metadata", "progress", "result"):
        values[name] = None if values[name] is None else json.loads(values[name])
    values["errors"] = tuple(as_entry(json.loads(entry)) for entry in values["errors"])
    values["tags"] = tuple(values["tags"])
    values["unique_key"] = None if values["unique_key"] is None else bytes(values["unique_key"])
    return ModelJob(**values)


def as_entry(entry: dict[str, Any]) -> Entry:
    assert entry["error"]
    datetime.fromisoformat(entry["at"])
    return Entry(entry["outcome"], entry["attempt"], entry.get("run_lease"), entry["worker"], entry.get("by"))


def explore(examples: int, steps: int, *, derandomize: bool, phases: tuple[Phase, ...]) -> None:
    run_state_machine_as_test(
        Queue,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=derandomize,
            database=None,
            deadline=None,
            print_blob=True,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
@pytest.mark.timeout(300)
def test_queue_agrees_with_its_model() -> None:
    # To shrink a failure takes minutes, past any timeout: the long run below does it.
    explore(40, 30, derandomize=True, phases=(Phase.generate,))


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
@pytest.mark.timeout(3600)
def test_queue_agrees_with_its_model_for_long() -> None:
    """``AWA_PROPERTY_EXAMPLES`` says how many examples, each of up to 80 steps."""
    explore(
        int(os.environ.get("AWA_PROPERTY_EXAMPLES", "1000")),
        80,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
    )
