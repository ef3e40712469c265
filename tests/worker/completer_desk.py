"""A completer on a thread of its own, with its holdings and slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from awa_django.storage.rows import ClaimedJob, Completion
from awa_django.worker.completer import Completer
from awa_django.worker.database import Session
from awa_django.worker.holdings import HeldJob, Holdings, slot_count
from awa_django.worker.slots import Counter, SlotTable
from tests.factories import insert_job
from tests.waiting import wait_until


@dataclass
class CompleterDesk:
    """A completer with its holdings and slots, on a thread of its own."""

    session: Session
    released: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        table = SlotTable.create(slot_count(100))
        self.reader = table.reader()
        self.holdings = Holdings({"default": 100}, 100, table.writer())
        self.completer = Completer(
            session=self.session,
            worker="w/1",
            slots=table.writer(),
            holdings=self.holdings,
            on_release=self.released.append,
        )

    def hold(self, job_id: int, lease: int = 1, progress: str | None = None) -> HeldJob:
        job = ClaimedJob(job_id, lease, "tests.job", "default", 1, 25, "{}", None, progress)
        return self.holdings.take([job])[0]

    def run(self, **columns: Any) -> HeldJob:
        """A running job in the database, and in hand."""
        return self.hold(insert_job("running", worker="w/1", **columns))

    def complete(self, held: HeldJob) -> None:
        self.completer.put(held, Completion(held.attempt))

    def settle(self) -> None:
        """Until nothing is in hand any more."""
        # By what they list, under their lock: each slot is cleared by then.
        wait_until(lambda: not self.holdings.jobs(), message="all slots are given back")
        assert self.reader.slots() == []
        assert self.reader[Counter.HELD] == 0

    def counts(self) -> dict[Counter, int]:
        return {
            counter: self.reader[counter]
            for counter in Counter
            if counter < Counter.HELD and self.reader[counter]
        }
