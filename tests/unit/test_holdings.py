"""Holdings: how many may still be claimed, of which queues, and that a slot comes back once."""

from __future__ import annotations

import threading
import time

import pytest

from awa_django.storage.rows import Attempt, ClaimedJob
from awa_django.worker.holdings import MAX_PREFETCH, HeldJob, Holdings, slot_count
from awa_django.worker.slots import Counter, Phase, SlotReader, SlotTable


@pytest.fixture
def table() -> SlotTable:
    return SlotTable.create(slot_count(8))


@pytest.fixture
def reader(table: SlotTable) -> SlotReader:
    return table.reader()


def make(table: SlotTable, limits: dict[str, int], concurrency: int = 8) -> Holdings:
    return Holdings(limits, concurrency, table.writer())


def jobs(count: int, queue: str = "a", first: int = 1) -> list[ClaimedJob]:
    return [ClaimedJob(first + number, 1, "k", queue, 1, 25, "{}", None, None) for number in range(count)]


def test_empty_hands_have_room_for_what_may_run(table: SlotTable) -> None:
    holdings = make(table, {"a": 8, "b": 3})
    assert holdings.room(0) == ({"a": 8, "b": 3}, 8)


def test_limit_of_a_queue_and_the_total_bound_each_other(table: SlotTable) -> None:
    holdings = make(table, {"a": 8, "b": 3})
    holdings.take(jobs(3, "b"))
    assert holdings.room(0) == ({"a": 5}, 5)
    holdings.take(jobs(5, "a", first=10))
    assert holdings.room(0) == ({}, 0)


def test_queues_take_turns_in_being_first(table: SlotTable) -> None:
    holdings = make(table, {"a": 8, "b": 8, "c": 8})
    order = [list(holdings.room(0)[0])]
    for number, queues in enumerate(("a", "b", "ac", "", "?")):
        held = holdings.take(job for queue in queues for job in jobs(1, queue, first=10 * number))
        order.append(list(holdings.room(0)[0]))
        holdings.give_back(held)
    # Each claim begins behind the last queue that gave something to the one before it.
    assert ["".join(queues) for queues in order] == ["abc", "bca", "cab", "bca", "bca", "bca"]


def test_prefetch_adds_to_the_total_and_to_each_queue_its_part(table: SlotTable) -> None:
    holdings = make(table, {"a": 8, "b": 2})
    limits, total = holdings.room(16)
    assert (limits, total) == ({"a": 24, "b": 2 + 4}, 24)


def test_prefetch_never_outgrows_the_slots(table: SlotTable) -> None:
    holdings = make(table, {"a": 8})
    holdings.take(jobs(8 + MAX_PREFETCH))
    assert holdings.room(10 * MAX_PREFETCH) == ({}, 0)


def test_what_is_held_is_in_the_slots(table: SlotTable, reader: SlotReader) -> None:
    holdings = make(table, {"a": 8})
    before = time.monotonic()
    held = holdings.take(jobs(3))
    assert len(holdings) == reader[Counter.HELD] == 3
    assert holdings.jobs() == held
    assert {slot.attempt for slot in reader.slots()} == {Attempt(1, 1), Attempt(2, 1), Attempt(3, 1)}
    assert {slot.phase for slot in reader.slots()} == {Phase.HELD}
    assert all(before <= slot.held_at <= time.monotonic() for slot in reader.slots())


def test_slot_given_back_twice_is_free_once(table: SlotTable, reader: SlotReader) -> None:
    holdings = make(table, {"a": 2}, concurrency=2)
    first, _ = holdings.take(jobs(2))
    holdings.give_back([first, first])
    holdings.give_back([first])
    assert holdings.room(0) == ({"a": 1}, 1)
    [again] = holdings.take(jobs(1, first=9))
    assert again.slot == first.slot
    assert {slot.attempt.job_id for slot in reader.slots()} == {2, 9}


def test_who_waits_for_room_is_woken_by_what_is_given_back(table: SlotTable) -> None:
    holdings = make(table, {"a": 2})
    held: list[HeldJob] = holdings.take(jobs(1))
    waited: list[float] = []

    def wait() -> None:
        started = time.monotonic()
        holdings.wait_for_room(60)
        waited.append(time.monotonic() - started)

    thread = threading.Thread(target=wait)
    thread.start()
    while not holdings._room._waiters:  # type: ignore[attr-defined]
        time.sleep(0.001)
    holdings.give_back(held)
    thread.join(90)
    assert waited[0] < 50
