"""The rules of producers: one job, a batch, a look at one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from awa_django import Fixed, Unique
from awa_django.enqueue import Enqueued, Item, enqueue, enqueue_many, find_holder
from awa_django.errors import JobNotFound, UniqueConflict
from awa_django.states import JobState
from tests import handlers
from tests.property.draws import CHANGING, INDEX, KIND, UNIQUE, item_strategy
from tests.property.machine import Machine
from tests.property.model import ModelJob


class Producers(Machine):
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
