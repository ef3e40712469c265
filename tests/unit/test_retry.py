from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_django.retry import Exponential, Fixed, Linear, RetryPolicy, from_json, to_json

POLICIES = [
    Exponential(),
    Exponential(base=1, factor=1, jitter=0),
    Exponential(base=0),
    Exponential(base=timedelta(days=30_000), factor=100, jitter=1),
    Linear(),
    Linear(step=0, jitter=0.3),
    Linear(step=timedelta(days=30_000)),
    Fixed(),
    Fixed(wait=0, jitter=1),
]


def cap_of(policy: RetryPolicy) -> timedelta:
    return policy.wait if isinstance(policy, Fixed) else policy.cap  # type: ignore[attr-defined]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@given(attempt=st.one_of(st.integers(), st.integers(0, 30), st.sampled_from([10**400, -(10**400)])))
@pytest.mark.fault("F47", injected="every integer as the attempt, with every policy")
def test_delay_answers_for_every_integer_and_stays_under_its_cap(policy: RetryPolicy, attempt: int) -> None:
    assert timedelta(0) <= policy.delay(attempt) <= cap_of(policy)


def test_exponential_grows_to_its_cap() -> None:
    policy = Exponential(base=5, factor=2, cap=60, jitter=0)
    assert [policy.delay(attempt).total_seconds() for attempt in (0, 1, 2, 3, 4, 5, 99)] == [
        5,
        5,
        10,
        20,
        40,
        60,
        60,
    ]


def test_default_reaches_a_day_and_no_more() -> None:
    assert timedelta(hours=12) <= Exponential().delay(40) <= timedelta(hours=24)


def test_jitter_spreads_jobs_that_failed_together() -> None:
    waits = {Exponential().delay(3) for _ in range(100)}
    assert len(waits) > 90
    assert min(waits) >= timedelta(seconds=10)
    assert max(waits) <= timedelta(seconds=20)


def test_linear_and_fixed() -> None:
    assert [Linear(base=1, step=2, cap=6).delay(n).total_seconds() for n in (1, 2, 3, 4, 5)] == [
        1,
        3,
        5,
        6,
        6,
    ]
    assert {Fixed(wait=7).delay(n) for n in (1, 2, 9)} == {timedelta(seconds=7)}


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_policy_survives_json(policy: RetryPolicy) -> None:
    assert from_json(to_json(policy)) == policy


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"policy": "os.system"},
        {"policy": "fixed", "wait": "x"},
        {"policy": "fixed", "other": 1},
        {"policy": "exponential", "factor": 0.5},
        {"policy": "linear", "jitter": True},
        {"policy": ["fixed"]},
    ],
)
def test_bad_json_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        from_json(data)


def test_policy_of_ones_own_works_but_does_not_travel() -> None:
    class Own:
        def delay(self, attempt: int) -> timedelta:
            return timedelta(seconds=attempt)

    assert isinstance(Own(), RetryPolicy)
    with pytest.raises(ValueError, match="cannot be stored"):
        to_json(Own())
