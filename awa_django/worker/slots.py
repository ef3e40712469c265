"""Shared memory: what each child holds and runs, readable by the supervisor whatever the child does.

A child writes its slots, the supervisor reads them, and writes back only the cancel marks. A slot
is written between two steps of its sequence number (odd while it is being written), so a reader
knows a torn read (seen in 23 % of the reads in a tight loop) and reads again.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import weakref
from contextlib import suppress
from enum import IntEnum
from multiprocessing import reduction
from typing import Any, NamedTuple

from awa_django.storage.rows import Attempt


class Phase(IntEnum):
    """How far a held job is."""

    EMPTY = 0
    HELD = 1
    """Claimed, its handler not started."""
    RUNNING = 2
    ENDED = 3
    """The handler has ended; its finish is being written."""


class Counter(IntEnum):
    """What a child counts for its supervisor; each has one writer at a time."""

    CLAIMED = 0
    COMPLETED = 1
    RETRIED = 2
    FAILED = 3
    CANCELLED = 4
    SNOOZED = 5
    RELEASED = 6
    UNKNOWN_KIND = 7
    STALE = 8
    SUPERSEDED = 9
    """Ended because another job holds their unique key."""
    HELD = 10
    """Jobs in its hands now."""
    IDLE_SINCE_NS = 11
    """Monotonic nanoseconds since when the claimer finds nothing; 0 while it finds some."""
    BUDGET_SPENT = 12
    """1 when the child may claim no more (``--max-jobs``, ``--max-jobs-per-child``)."""
    CLAIMER_TICK_NS = 13
    """Monotonic nanoseconds of the claimer's last good tick."""
    COMPLETER_TICK_NS = 14
    """The same of the completer's."""
    ANSWER_LOST_NS = 15
    """The same of the last claim whose answer may have been lost; 0 before one."""


class Slot(NamedTuple):
    """A held job. Times are monotonic seconds, the same clock in every process of the machine."""

    number: int
    attempt: Attempt
    phase: Phase
    held_at: float
    must_end_at: float
    """When its timeout ends it; 0.0 when it has none or has not started."""


_SEQUENCE = struct.Struct("=Q")
_BODY = struct.Struct("=qqddB7x")  # job id, lease, held_at, must_end_at, phase
_SLOT_BYTES = _SEQUENCE.size + _BODY.size + 8  # and the cancel mark
_PHASE_AT = _SEQUENCE.size + 32
_MUST_END_AT = _SEQUENCE.size + 24
_CANCEL_AT = _SEQUENCE.size + _BODY.size
_WORD = struct.Struct("=q")
_DOUBLE = struct.Struct("=d")
_HEADER_BYTES = 8 * len(Counter)
_READ_TRIES = 100


class SlotTable:
    """The slots and counters of one child, in memory that can be given to it as an argument of its process.

    It needs no directory: a container's /dev/shm may be read-only, or full, where whoever touched a page
    of a file in it would be ended by SIGBUS.
    """

    def __init__(self, descriptor: int, count: int) -> None:
        self.count = count
        # To give to a process, until the table itself is gone; the memory lives as long as its views. Closed
        # too where there is none left for the memory itself: a start that fails is tried again and again.
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self.memory = mmap.mmap(descriptor, _HEADER_BYTES + count * _SLOT_BYTES)

    @classmethod
    def create(cls, count: int) -> SlotTable:
        """An empty table of ``count`` slots."""
        descriptor = _nameless_file()
        os.ftruncate(descriptor, _HEADER_BYTES + count * _SLOT_BYTES)
        return cls(descriptor, count)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_given, (reduction.DupFd(self._descriptor), self.count)

    def writer(self) -> SlotWriter:
        """The child's side."""
        return SlotWriter(memoryview(self.memory))

    def reader(self) -> SlotReader:
        """The supervisor's side."""
        return SlotReader(memoryview(self.memory), self.count)


def _nameless_file() -> int:
    """The descriptor of an empty file: in memory where the system has such, else in a temporary directory."""
    if hasattr(os, "memfd_create"):
        with suppress(OSError):  # an old kernel, or one that is told to refuse (vm.memfd_noexec = 2)
            return os.memfd_create("awa-slots")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _open_given(duplicate: Any, count: int) -> SlotTable:
    """In the process that was given a table: the same table."""
    return SlotTable(duplicate.detach(), count)


class SlotWriter:
    """Writes one child's slots; a slot has one writing thread at a time."""

    __slots__ = ("_view",)

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def hold(self, index: int, attempt: Attempt, held_at: float) -> None:
        """A job was claimed into the slot."""
        at = _HEADER_BYTES + index * _SLOT_BYTES
        view = self._view
        sequence = _SEQUENCE.unpack_from(view, at)[0]
        _SEQUENCE.pack_into(view, at, sequence + 1)
        _BODY.pack_into(view, at + _SEQUENCE.size, attempt[0], attempt[1], held_at, 0.0, 1)  # Phase.HELD
        _SEQUENCE.pack_into(view, at, sequence + 2)

    def start(self, index: int, must_end_at: float) -> None:
        """Its handler starts now; ``must_end_at`` 0.0 is without a timeout."""
        at = _HEADER_BYTES + index * _SLOT_BYTES
        if must_end_at:
            _DOUBLE.pack_into(self._view, at + _MUST_END_AT, must_end_at)
        self._view[at + _PHASE_AT] = 2  # Phase.RUNNING, without the look-up

    def end(self, index: int) -> None:
        """Its handler has ended."""
        self._view[_HEADER_BYTES + index * _SLOT_BYTES + _PHASE_AT] = 3  # Phase.ENDED

    def clear(self, index: int) -> None:
        """Its finish is written: the slot is free."""
        self._view[_HEADER_BYTES + index * _SLOT_BYTES + _PHASE_AT] = 0  # Phase.EMPTY

    def is_cancelled(self, index: int, attempt: Attempt) -> bool:
        """Whether the supervisor asked this run to stop."""
        at = _HEADER_BYTES + index * _SLOT_BYTES + _CANCEL_AT
        return bool(_WORD.unpack_from(self._view, at)[0] == _mark(attempt))

    def add(self, counter: Counter, amount: int) -> None:
        value = _WORD.unpack_from(self._view, 8 * counter)[0]
        _WORD.pack_into(self._view, 8 * counter, value + amount)

    def set(self, counter: Counter, value: int) -> None:
        _WORD.pack_into(self._view, 8 * counter, value)


class SlotReader:
    """Reads one child's slots, and marks runs to cancel."""

    __slots__ = ("_count", "_view")

    def __init__(self, view: memoryview, count: int) -> None:
        self._view = view
        self._count = count

    def slots(self) -> list[Slot]:
        """What the child holds now; each slot is whole, the list is no snapshot."""
        found = []
        for index in range(self._count):
            if self._view[_HEADER_BYTES + index * _SLOT_BYTES + _PHASE_AT]:
                slot = self._read(index)
                if slot is not None:
                    found.append(slot)
        return found

    def mark_cancelled(self, slot: Slot) -> None:
        """Ask the run in the slot to stop; a later run in the same slot is not meant."""
        at = _HEADER_BYTES + slot.number * _SLOT_BYTES + _CANCEL_AT
        _WORD.pack_into(self._view, at, _mark(slot.attempt))

    def __getitem__(self, counter: Counter) -> int:
        value: int = _WORD.unpack_from(self._view, 8 * counter)[0]
        return value

    def _read(self, index: int) -> Slot | None:
        at = _HEADER_BYTES + index * _SLOT_BYTES
        for _ in range(_READ_TRIES):
            before = _SEQUENCE.unpack_from(self._view, at)[0]
            job_id, run_lease, held_at, must_end_at, phase = _BODY.unpack_from(
                self._view, at + _SEQUENCE.size
            )
            if before % 2 == 0 and _SEQUENCE.unpack_from(self._view, at)[0] == before:
                if phase == Phase.EMPTY:
                    return None
                return Slot(index, Attempt(job_id, run_lease), Phase(phase), held_at, must_end_at)
        # The child died in the middle of a write: a job that it never started.
        return Slot(index, Attempt(job_id, run_lease), Phase.HELD, held_at, 0.0)


def _mark(attempt: Attempt) -> int:
    """One word that names the run: it is never 0, and differs from run to run of a slot."""
    return ((attempt.job_id * 1_000_003 + attempt.run_lease) & 0x7FFF_FFFF_FFFF_FFFF) or 1
