"""A child as the supervisor's services see it, without a process: its slots are the test's to write."""

from __future__ import annotations

import os
import time
from typing import cast

from awa_django.storage.rows import Attempt
from awa_django.worker.child_process import ChildProcess
from awa_django.worker.slots import Counter, Phase, Slot, SlotTable

SLOTS = 8


class FakeChild:
    """What the services read of a ``ChildProcess``."""

    def __init__(self, name: str = "w/1") -> None:
        self.name = name
        self.application_name = f"awa-test-child-{os.getpid()}-{name}"
        self.pid = 4711
        self.frozen = False
        table = SlotTable.create(SLOTS)
        self.writer = table.writer()
        self.reader = table.reader()
        self._next = 0

    def hold(self, attempt: Attempt, *, age: float = 3600.0, phase: Phase = Phase.RUNNING) -> int:
        """The child has the run in hand since ``age`` seconds; its slot."""
        slot, self._next = self._next, self._next + 1
        self.writer.hold(slot, attempt, time.monotonic() - age)
        if phase != Phase.HELD:
            self.writer.start(slot, 0.0)
        if phase == Phase.ENDED:
            self.writer.end(slot)
        return slot

    def is_told_to_stop(self, slot: int, attempt: Attempt) -> bool:
        return self.writer.is_cancelled(slot, attempt)

    def __getitem__(self, counter: Counter) -> int:
        return self.reader[counter]

    def is_frozen(self) -> bool:
        return self.frozen

    def slots(self) -> list[Slot]:
        return self.reader.slots()

    def mark_cancelled(self, slot: Slot) -> None:
        self.reader.mark_cancelled(slot)

    def as_child(self) -> ChildProcess:
        return cast("ChildProcess", self)
