"""The account must be able to fail: each thing that may not be, made by hand, is a violation."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.soak.account import Account, check_ends, check_enqueues, check_runs
from tests.soak.history import Edge, Event, History, edges_of
from tests.soak.ledger import Enqueues, Run

Runs = dict[tuple[int, int], Run]

CLAIM = Edge("available", "running", 1, 1, 11.0)
FAIR = [
    Edge(None, "available", 0, 0, 10.0),
    CLAIM,
    Edge("running", "completed", 1, 1, 12.0),
]


def job(
    edges: list[Edge], *, kind: str = "soak.quick", token: str | None = "t", max_attempts: int = 25
) -> History:
    return History(1, kind, token, max_attempts, edges)


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
    check_runs(account, histories, {(1, 1): Run([11.1], ["returned"], {7})} if runs is None else runs)
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
    runs = {(1, lease): Run([10.0 + lease], ["returned"], {7}) for lease in (1, 2)}
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
    history = job([FAIR[0], CLAIM, Edge("running", "failed", 1, 1, 12.0)])
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
    twice = {(1, 1): Run([11.1, 11.2], ["returned"], {7})}
    assert violated(history=job(FAIR), runs=twice) == {"lease started twice"}
    unclaimed = {(1, 1): Run([11.1], ["returned"], {7}), (1, 2): Run([11.1], ["returned"], {7})}
    assert violated(history=job(FAIR), runs=unclaimed) == {"run without a claim"}
    assert violated(history=job(FAIR), runs={}) == {"completed without its handler's return"}
    late = {(1, 1): Run([12.5], ["returned"], {7})}
    assert violated(history=job(FAIR), runs=late) == {"started after the lease had ended"}


def test_job_cancelled_while_it_waits_in_hand_may_start_soon_after() -> None:
    history = job([*FAIR[:2], Edge("running", "cancelled", 1, 1, 12.0)])
    for started_at, expected in ((13.9, set()), (15.0, {"started after the lease had ended"})):
        runs = {(1, 1): Run([started_at], ["returned"], {7})}
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

    runs = {(1, 1): Run([11.1], ["raised"], {7}), (1, 2): Run([14.1], ["returned"], {7})}
    assert violated(history=run_again(1), runs=runs) == {"more starts than attempts"}
    assert violated(history=run_again(0), runs=runs) == set()


def test_move_between_tables_is_one_edge_in_either_order() -> None:
    def event(seq: int, was: str | None, is_now: str | None) -> Event:
        return Event(seq, 5, 100.0, 1, was, is_now, 1, 1, 25, "soak.quick", "t")

    left, came = event(1, "running", None), event(2, None, "retryable")
    expected = [Edge("running", "retryable", 1, 1, 90.0)]
    assert list(edges_of([left, came], 10.0)) == expected
    assert list(edges_of([came, left], 10.0)) == expected
    assert list(edges_of([left], 10.0)) == [Edge("running", None, 1, 1, 90.0)]
