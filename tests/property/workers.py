"""The rules of workers: claim, end, beat, and what a run that lost its lease may still say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from awa_django import Cancel, RetryAfter, Snooze, TerminalError
from awa_django.storage import finalize
from awa_django.storage.claim import ClaimRequest
from awa_django.storage.heartbeat import heartbeat, progress
from awa_django.storage.rows import ClaimedJob, Completion, Outcome
from awa_django.worker import verdict
from awa_django.worker.claimer import Claimer
from awa_django.worker.settle import settle
from tests.property import model_settle
from tests.property.draws import HOUR, INDEX, INDEXES, QUEUE, WAYS, WORKERS
from tests.property.leaders import HOLD, Leaders
from tests.property.machine import Candidate
from tests.property.model import Between, Entry, ModelJob
from tests.property.model_settle import End


class Workers(Leaders):
    def __init__(self) -> None:
        super().__init__()
        nothing = cast("Any", None)
        self.claimer = Claimer(
            session=self.session,
            scout_session=nothing,
            worker="",
            options=nothing,
            slots=nothing,
            holdings=nothing,
            executor=nothing,
        )

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

    def end(self, run: ClaimedJob, worker: str, way: str) -> tuple[Outcome, End]:
        """The outcome as the executor would make it, and the model's idea of it."""
        if run.attempt > run.max_attempts and way != "release":
            return verdict.attempts_used_up(run, worker=worker), self.failure(run, worker, "failed")
        outcome: Outcome | None
        match way:
            case "complete" | "delete":
                outcome = Completion(run.key, delete=way == "delete")
                return outcome, End(run.id, run.run_lease, way)
            case "keep_result":
                return Completion(run.key, "[1]"), End(run.id, run.run_lease, way, result=[1])
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
