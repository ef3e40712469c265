"""The rules of the leader's duties: promote, rescue, prune."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import rule

from awa_django.conf import Retention
from awa_django.worker.promoter import Promoter
from awa_django.worker.pruner import Pruner
from awa_django.worker.rescuer import Rescuer
from tests.property import model_settle
from tests.property.draws import HOUR, INDEXES
from tests.property.machine import Candidate, Machine
from tests.property.model import Entry
from tests.property.model_settle import End

LEADER = "leader"
STALE_AFTER = timedelta(seconds=90)
HOLD = timedelta(seconds=4)
KEPT = Retention(
    by_state={"completed": HOUR, "failed": 24 * HOUR, "cancelled": 24 * HOUR},
    by_queue={"b": {"completed": timedelta(0)}},
)


class Leaders(Machine):
    def __init__(self) -> None:
        super().__init__()
        session, leader = self.session, self.leader
        self.promoter = Promoter(session, leader, interval=HOUR, worker=LEADER)
        self.rescuer = Rescuer(session, leader, interval=HOUR, stale_after=STALE_AFTER, worker=LEADER)
        self.pruner = Pruner(session, leader, interval=HOUR, retention=KEPT)

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
