"""The rules of operators: what the admin does to jobs, and pauses of queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from hypothesis import strategies as st
from hypothesis.stateful import rule

from awa_django import operations
from awa_django.storage import queues as storage
from tests.property import model_operator as operator
from tests.property.draws import HOUR, INDEXES, QUEUE, WHEN
from tests.property.machine import Candidate, Machine
from tests.property.model import Model, ModelJob


class Operators(Machine):
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
        if until == -HOUR:  # refused; somebody else may write it
            with pytest.raises(ValueError, match="has passed"):
                operations.pause_queue(queue, until=ends_at)
            changed = storage.pause_queue(
                connection, queue, paused_by="root", paused_until=ends_at, shorten=True
            )
        else:
            result = operations.pause_queue(queue, by="root", until=ends_at)
            assert result.paused
            changed = result.changed
        assert changed == (not same or not self.model.is_paused(queue))
        self.model.paused[queue] = ends_at


def unended(job: ModelJob) -> bool:
    return not job.is_terminal
