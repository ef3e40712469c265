"""Slots: what a child writes its supervisor reads whole; a cancel mark is for one run only."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import threading
import time
from unittest import mock

import psutil
import pytest

from awa_django.storage.rows import Attempt
from awa_django.worker.slots import (
    _BODY,
    _HEADER_BYTES,
    _SEQUENCE,
    Counter,
    Phase,
    Slot,
    SlotReader,
    SlotTable,
    SlotWriter,
)

LARGEST = Attempt(2**63 - 1, 2**63 - 2)


@pytest.fixture
def table() -> SlotTable:
    return SlotTable.create(4)


@pytest.fixture
def writer(table: SlotTable) -> SlotWriter:
    return table.writer()


@pytest.fixture
def reader(table: SlotTable) -> SlotReader:
    return table.reader()


def test_empty_table_holds_nothing(reader: SlotReader) -> None:
    assert reader.slots() == []
    assert {reader[counter] for counter in Counter} == {0}


def test_slot_is_read_through_its_phases(writer: SlotWriter, reader: SlotReader) -> None:
    writer.hold(3, LARGEST, 12.5)
    assert reader.slots() == [Slot(3, LARGEST, Phase.HELD, 12.5, 0.0)]
    writer.start(3, 20.25)
    assert reader.slots() == [Slot(3, LARGEST, Phase.RUNNING, 12.5, 20.25)]
    writer.end(3)
    assert reader.slots() == [Slot(3, LARGEST, Phase.ENDED, 12.5, 20.25)]
    writer.clear(3)
    assert reader.slots() == []


def test_next_job_of_a_slot_has_nothing_of_the_last(writer: SlotWriter, reader: SlotReader) -> None:
    writer.hold(0, Attempt(1, 1), 1.0)
    writer.start(0, 9.0)
    writer.clear(0)
    writer.hold(0, Attempt(2, 1), 2.0)
    assert reader.slots() == [Slot(0, Attempt(2, 1), Phase.HELD, 2.0, 0.0)]
    writer.start(0, 0.0)
    assert reader.slots()[0].must_end_at == 0.0


@pytest.mark.parametrize("other", [Attempt(1, 2), Attempt(2, 1)])
def test_cancel_mark_is_for_one_run(writer: SlotWriter, reader: SlotReader, other: Attempt) -> None:
    writer.hold(1, Attempt(1, 1), 1.0)
    assert not writer.is_cancelled(1, Attempt(1, 1))
    reader.mark_cancelled(reader.slots()[0])
    assert writer.is_cancelled(1, Attempt(1, 1))
    writer.hold(1, other, 2.0)
    assert not writer.is_cancelled(1, other)


def test_counters_add_and_set(writer: SlotWriter, reader: SlotReader) -> None:
    writer.add(Counter.COMPLETED, 3)
    writer.add(Counter.COMPLETED, 4)
    writer.set(Counter.IDLE_SINCE_NS, 2**62)
    assert (reader[Counter.COMPLETED], reader[Counter.IDLE_SINCE_NS], reader[Counter.FAILED]) == (7, 2**62, 0)


def test_slot_of_a_child_that_died_while_writing_it_was_never_started(
    table: SlotTable, reader: SlotReader
) -> None:
    view = memoryview(table.memory)
    _SEQUENCE.pack_into(view, _HEADER_BYTES, 7)
    _BODY.pack_into(view, _HEADER_BYTES + _SEQUENCE.size, 5, 6, 1.0, 2.0, Phase.RUNNING)
    assert reader.slots() == [Slot(0, Attempt(5, 6), Phase.HELD, 1.0, 0.0)]


def _hold(given: SlotTable) -> None:
    given.writer().hold(3, LARGEST, 12.5)


def test_table_is_given_to_a_process_without_a_directory_to_write_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker did not start where /dev/shm is read-only."""
    monkeypatch.setattr("tempfile.mkstemp", mock.Mock(side_effect=OSError(errno.EROFS, "Read-only")))
    table = SlotTable.create(4)
    process = multiprocessing.get_context("spawn").Process(target=_hold, args=(table,))
    process.start()
    reader = table.reader()
    descriptors = psutil.Process().num_fds()
    del table  # what was to be given on
    assert psutil.Process().num_fds() == descriptors - 1
    process.join(60)
    assert reader.slots() == [Slot(3, LARGEST, Phase.HELD, 12.5, 0.0)]


@pytest.mark.parametrize("kernel_refuses", [False, True])
def test_table_is_in_a_temporary_file_where_the_system_has_none_in_memory(
    monkeypatch: pytest.MonkeyPatch, kernel_refuses: bool
) -> None:
    if kernel_refuses:
        monkeypatch.setattr("os.memfd_create", mock.Mock(side_effect=OSError(errno.ENOSYS, "as told")))
    else:
        monkeypatch.delattr("os.memfd_create")
    table = SlotTable.create(2)
    table.writer().add(Counter.COMPLETED, 3)
    assert table.reader()[Counter.COMPLETED] == 3


def test_table_that_gets_no_memory_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try to start a child would take one more of the descriptors that it has too few of."""
    monkeypatch.setattr("mmap.mmap", mock.Mock(side_effect=OSError))  # EMFILE
    descriptors = psutil.Process().num_fds()
    with contextlib.suppress(OSError):
        SlotTable.create(2)
    assert psutil.Process().num_fds() == descriptors


def test_slots_are_never_read_torn(table: SlotTable, reader: SlotReader) -> None:
    """Whatever is read belongs together: the lease is a function of the id, and so is the instant."""
    stop = threading.Event()

    def write() -> None:
        writer = table.writer()
        number = 0
        while not stop.is_set():
            number += 1
            writer.hold(0, Attempt(number, number * 2), float(number))
            writer.start(0, 0.0)
            writer.clear(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        began = time.monotonic()
        seen = 0
        # Half a second; longer where the writer had no turn in it.
        while time.monotonic() < began + (0.5 if seen else 60):
            for slot in reader.slots():
                seen += 1
                assert slot.attempt.run_lease == slot.attempt.job_id * 2 == slot.held_at * 2
    finally:
        stop.set()
        thread.join()
    assert seen
