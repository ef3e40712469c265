"""Holdings: the jobs a child has in its hands, from claim to confirmed finish, within its limits."""

from __future__ import annotations

import threading
import time
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from awa_django.codec import JSON
from awa_django.handler import Handler
from awa_django.storage.rows import Attempt, ClaimedJob
from awa_django.worker.slots import Counter, SlotWriter

# The most a child holds beyond what runs, whatever the handlers' speed: a batch that is claimed, one that
# runs, one that is written, and one on its way between them (docs/design/0007).
MAX_PREFETCH = 4_000
# Seconds: one that has not started by then goes back to the queue, for another worker.
LONGEST_HOLD = 2.0


class HeldJob:
    """One claimed job in this process."""

    __slots__ = ("handler", "held_at", "is_told_to_stop", "job", "progress", "slot", "started_at")

    def __init__(self, job: ClaimedJob, slot: int, held_at: float) -> None:
        self.job = job
        self.slot = slot
        self.held_at = held_at
        self.started_at = 0.0
        self.handler: Handler | None = None
        self.is_told_to_stop = False
        self.progress: dict[str, JSON] | None = None

    @property
    def attempt(self) -> Attempt:
        return self.job.key

    @property
    def is_too_late(self) -> bool:
        """Whether the process slept (a paused machine) since the claim: the lease may be another's by now."""
        return self.started_at - self.held_at > LONGEST_HOLD


def handler_of(held: HeldJob) -> Handler:
    """Its handler, which the executor looked up when it was handed over."""
    assert held.handler is not None
    return held.handler


class Holdings:
    """Slots and per-queue limits. The claimer takes; whoever confirms an end gives back."""

    def __init__(self, limits: Mapping[str, int], concurrency: int, slots: SlotWriter) -> None:
        self._limits = limits
        self._concurrency = concurrency
        self._slots = slots
        self._free = list(range(slot_count(concurrency) - 1, -1, -1))
        self._held: Tally[str] = Tally()
        self._jobs: dict[int, HeldJob] = {}
        self._queues = list(limits)  # in turns
        self._room = threading.Condition()

    def __len__(self) -> int:
        return len(self._jobs)

    def jobs(self) -> list[HeldJob]:
        """What is held now."""
        with self._room:
            return list(self._jobs.values())

    def room(self, prefetch: int) -> tuple[dict[str, int], int]:
        """How many more may be claimed: by queue (those first that the last claim did not reach), in all."""
        with self._room:
            total = min(self._concurrency + prefetch - len(self._jobs), len(self._free))
            if total <= 0:
                return {}, 0
            limits = {}
            for queue in self._queues:
                limit = self._limits[queue]
                # A queue's own part of what is held ahead: that of its jobs which may run at once.
                ahead = prefetch * min(limit, self._concurrency) // self._concurrency
                room = limit + ahead - self._held[queue]
                if room > 0:
                    limits[queue] = min(room, total)
            return limits, total if limits else 0

    def take(self, jobs: Iterable[ClaimedJob]) -> list[HeldJob]:
        """Hold what was claimed."""
        now = time.monotonic()
        taken = []
        with self._room:
            for job in jobs:
                slot = self._free.pop()
                held = HeldJob(job, slot, now)
                self._jobs[slot] = held
                self._held[job.queue] += 1
                self._slots.hold(slot, job.key, now)
                taken.append(held)
            self._slots.set(Counter.HELD, len(self._jobs))
            self._take_turns({held.job.queue for held in taken})
        return taken

    def _take_turns(self, claimed: AbstractSet[str]) -> None:
        """The next claim begins behind the last queue that gave something to this one."""
        places = (place for place, queue in enumerate(self._queues, 1) if queue in claimed)
        reached = max(places, default=0)
        self._queues = self._queues[reached:] + self._queues[:reached]

    def give_back(self, held: Iterable[HeldJob]) -> None:
        """Their ends are confirmed: the slots are free."""
        with self._room:
            for each in held:
                if self._jobs.pop(each.slot, None) is None:
                    continue
                self._slots.clear(each.slot)
                self._free.append(each.slot)
                self._held[each.job.queue] -= 1
            self._slots.set(Counter.HELD, len(self._jobs))
            self._room.notify_all()

    def wait_for_room(self, timeout: float) -> None:
        """Until something is given back, at most ``timeout`` seconds."""
        with self._room:
            self._room.wait(timeout)

    def wake(self) -> None:
        """End every ``wait_for_room``."""
        with self._room:
            self._room.notify_all()


def slot_count(concurrency: int) -> int:
    """How many slots a child of this concurrency has."""
    return concurrency + MAX_PREFETCH
