from __future__ import annotations

import itertools

import pytest

from tests.waiting import wait_until


def test_wait_until_returns_the_first_true_answer() -> None:
    answers = iter([None, 0, "ready", "late"])
    assert wait_until(lambda: next(answers), interval=0) == "ready"


def test_wait_until_asks_once_more_when_the_time_is_over() -> None:
    answers = itertools.chain([False], itertools.repeat(True))
    assert wait_until(lambda: next(answers), timeout=0.01, interval=0.05)


def test_wait_until_gives_up_and_says_what_it_waited_for() -> None:
    with pytest.raises(AssertionError, match=r"after 0.01 s: .the parcel. .last answer: \[\]"):
        wait_until(list, timeout=0.01, interval=0.001, message=lambda: "the parcel")
