"""The account must be able to fail: each thing that may not be, made by hand, is a violation."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.soak.account import (
    Account,
    Runs,
    check_ends,
    check_enqueues,
    check_runs,
    check_schedule,
    check_unique,
    has_right_entries,
)
from tests.soak.frozen import check_freezes
from tests.soak.history import Edge, Event, History, edges_of
from tests.soak.ledger import Enqueues, Run
from tests.soak.nemesis import Freeze

CLAIM = Edge("available", "running", 1, 1, 11.0)
FAIR = [
    Edge(None, "available", 0, 0, 10.0),
    CLAIM,
    Edge("running", "completed", 1, 1, 12.0),
]


def job(
    edges: list[Edge], *, kind: str = "soak.quick", token: str | None = "t", max_attempts: int = 25
) -> History:
    return History(1, kind, token, max_attempts, edges=edges)


def run(started_at: float = 11.1, returned_at: float | None = None) -> Run:
    """One handler's account of itself; it returned soon, if nothing else is said."""
    return Run([started_at], started_at + 0.1 if returned_at is None else returned_at, pids={7})


def wish(**facts: object) -> Enqueues:
    """One wish for one job, acknowledged."""
    wanted = Enqueues(kinds={"t": "soak.quick"}, committed={"t": 1})
    for name, value in facts.items():
        setattr(wanted, name, value)
    return wanted


def violated(
    *, wanted: Enqueues | None = None, history: History | None = None, runs: Runs | None = None
) -> set[str]:
    """The names of what is violated."""
    account = Account()
    histories = {} if history is None else {1: history}
    check_enqueues(account, wanted or wish(), histories)
    check_ends(account, wanted or wish(), histories)
    check_unique(account, histories)
    check_schedule(account, histories)
    check_runs(account, histories, {(1, 1): run()} if runs is None else runs)
    return {each.split(":")[0] for each in account.violations}


def test_fair_history_violates_nothing() -> None:
    assert violated(history=job(FAIR)) == set()


def test_acknowledged_job_that_is_not_there_is_lost() -> None:
    assert violated(runs={}) == {"lost"}


def test_job_that_nobody_wanted_is_unknown() -> None:
    assert violated(wanted=Enqueues(), history=job(FAIR)) == {"unknown token"}
    assert violated(wanted=Enqueues(), history=job(FAIR, token=None)) == {"without token"}


def test_refused_job_must_not_be_there() -> None:
    wanted = Enqueues(kinds={"t": "soak.quick"}, refused={"t"})
    assert violated(wanted=wanted, history=job(FAIR)) == {"refused and there"}


def test_duplicate_must_have_had_a_holder() -> None:
    assert violated(wanted=wish(duplicates={"u": 99}), history=job(FAIR)) == {"duplicates of no job"}


def test_second_completion_is_found() -> None:
    again = [Edge("completed", "running", 2, 2, 13.0), Edge("running", "completed", 2, 2, 14.0)]
    runs = {(1, 1): run(), (1, 2): run(13.1)}
    assert violated(history=job(FAIR + again), runs=runs) == {"finished twice", "illegal history"}


@pytest.mark.parametrize(
    "edge",
    [
        Edge("completed", "available", 1, 1, 13.0),  # nothing leaves completed
        Edge("retryable", "available", 1, 1, 13.0),  # it was not retryable
        Edge("completed", None, 2, 1, 13.0),  # the lease grew without a claim
    ],
)
def test_illegal_history_is_found(edge: Edge) -> None:
    assert "illegal history" in violated(history=job([*FAIR, edge]))


def test_wrong_end_is_found() -> None:
    history = job([FAIR[0], CLAIM, Edge("running", "failed", 1, 1, 12.0)], max_attempts=1)
    assert violated(history=history) == {"wrong end"}
    assert violated(wanted=wish(cancelled={1}), history=job(FAIR)) == {"wrong end"}
    assert violated(wanted=wish(deleted={1}), history=job(FAIR)) == {"wrong end"}
    assert violated(wanted=wish(later={"t"}), history=job(FAIR)) == {"wrong end"}


def test_change_without_an_answer_may_have_been_made_or_not() -> None:
    unsure = wish(unanswered=Counter({1: 1}))
    assert violated(wanted=unsure, history=job(FAIR)) == set()
    cancelled = job([FAIR[0], Edge("available", "cancelled", 0, 0, 11.0)])
    assert violated(wanted=unsure, history=cancelled, runs={}) == set()


def test_unfinished_job_is_stuck() -> None:
    assert violated(history=job(FAIR[:2])) == {"wrong end", "stuck"}


def test_runs_that_may_not_be_are_found() -> None:
    twice = {(1, 1): Run([11.1, 11.2], 11.3, pids={7})}
    assert violated(history=job(FAIR), runs=twice) == {"lease started twice"}
    assert violated(history=job(FAIR), runs={(1, 1): run(), (1, 2): run()}) == {"run without a claim"}
    for none in ({}, {(1, 1): Run([11.1], raised_at=11.2, pids={7})}, {(1, 1): run(11.1, 12.5)}):
        assert violated(history=job(FAIR), runs=none) == {"completed before its handler's return"}
    late = {(1, 1): run(12.5)}
    assert violated(history=job(FAIR), runs=late) == {
        "started after the lease had ended",
        "completed before its handler's return",
    }


def test_job_cancelled_while_it_waits_in_hand_may_start_soon_after() -> None:
    history = job([*FAIR[:2], Edge("running", "cancelled", 1, 1, 12.0)])
    for started_at, expected in ((13.9, set()), (15.0, {"started after the lease had ended"})):
        runs = {(1, 1): run(started_at)}
        assert violated(wanted=wish(cancelled={1}), history=history, runs=runs) == expected


def test_starts_are_bounded_by_attempts_and_refunds() -> None:
    def run_again(attempt: int) -> History:
        """Its only attempt fails or is given back, and it runs a second time."""
        return job(
            [
                FAIR[0],
                CLAIM,
                Edge("running", "scheduled", 1, attempt, 12.0),
                Edge("scheduled", "available", 1, attempt, 13.0),
                Edge("available", "running", 2, attempt + 1, 14.0),
                Edge("running", "completed", 2, attempt + 1, 15.0),
            ],
            max_attempts=1,
        )

    runs = {(1, 1): run(), (1, 2): run(14.1)}
    assert violated(history=run_again(1), runs=runs) == {
        "more starts than attempts",
        "illegal history",
        "attempts above the limit",
    }
    assert violated(history=run_again(0), runs=runs) == set()


def test_failure_with_attempts_left_is_found() -> None:
    history = job([*FAIR[:2], Edge("running", "failed", 1, 1, 12.0)], kind="soak.always_fail")
    assert violated(history=history) == {"failed with attempts left"}


@pytest.mark.parametrize(("came_at", "expected"), [(11.9, {"twins"}), (12.1, set())])
def test_two_unfinished_jobs_of_one_key_are_found(came_at: float, expected: set[str]) -> None:
    account = Account()
    other = [Edge(None, "available", 0, 0, came_at)]
    check_unique(
        account,
        {
            1: History(1, "soak.unique", "t", 25, "aa", FAIR),
            2: History(2, "soak.unique", "u", 25, "aa", other),
            3: History(3, "soak.unique", "v", 25, "bb", other),
        },
    )
    assert {each.split(":")[0] for each in account.violations} == expected


def test_minute_that_the_schedule_left_out_is_found() -> None:
    def fire(job_id: int, minute: int) -> History:
        return History(job_id, "soak.every_minute", f"2026-11-29T10:{minute}:00+00:00", 25, None, FAIR)

    for minutes, expected in (((10, 11, 12), 0), ((10, 12), 1)):
        account = Account()
        check_schedule(account, {minute: fire(minute, minute) for minute in minutes})
        assert len(account.violations) == expected


@pytest.mark.parametrize(
    ("leases", "is_right"), [([1], True), ([], False), ([1, 1], False), ([1, 2], False), ([None], False)]
)
def test_failed_run_has_one_entry_of_its_own(leases: list[int], is_right: bool) -> None:
    history = job(
        [
            *FAIR[:2],
            Edge("running", "retryable", 1, 1, 12.0),
            Edge("retryable", "available", 1, 1, 12.5),
            Edge("available", "running", 2, 2, 13.0),
            Edge("running", "completed", 2, 2, 14.0),
        ]
    )
    assert has_right_entries(history, Counter(leases)) is is_right


def test_frozen_run_is_followed_to_its_end() -> None:
    history = job(
        [
            *FAIR[:2],
            Edge("running", "retryable", 1, 1, 20.0),
            Edge("retryable", "available", 1, 1, 20.5),
            Edge("available", "running", 2, 2, 21.0),
            Edge("running", "completed", 2, 2, 22.0),
        ]
    )
    runs = {(1, 1): run(11.1, 25.1), (1, 2): Run([21.1], 21.9, pids={8})}
    account = Account()
    check_freezes(account, [Freeze(frozenset({7}), 12.0, 25.0)], {1: history}, runs)
    assert list(account.figures.values()) == [1, 1, 1, 1]


def test_move_between_tables_is_one_edge_in_either_order() -> None:
    def event(seq: int, was: str | None, is_now: str | None) -> Event:
        return Event(seq, 5, 100.0, 1, was, is_now, 1, 1, 25, "soak.quick", "t", None)

    left, came = event(1, "running", None), event(2, None, "retryable")
    expected = [Edge("running", "retryable", 1, 1, 90.0)]
    assert list(edges_of([left, came], 10.0)) == expected
    assert list(edges_of([came, left], 10.0)) == expected
    assert list(edges_of([left], 10.0)) == [Edge("running", None, 1, 1, 90.0)]
