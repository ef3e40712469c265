from __future__ import annotations

from typing import Any

import pytest

from awa_django import InvalidJob, JobContext


def context(**changes: Any) -> JobContext:
    return JobContext(
        **{
            "job_id": 1,
            "kind": "k",
            "queue": "default",
            "attempt": 1,
            "max_attempts": 3,
            "run_lease": 7,
            **changes,
        }
    )


def test_is_cancelled_asks_each_time() -> None:
    answers = iter([False, True])
    asked = context(cancelled=lambda: next(answers))
    assert [asked.is_cancelled, asked.is_cancelled] == [False, True]
    assert not context().is_cancelled


def test_progress_reports_what_is_given_and_cleans_the_message() -> None:
    reports: list[object] = []
    running = context(report=reports.append)
    running.progress(50)
    running.progress(message="half\x00way")
    running.progress(0, checkpoint={"row": 3})
    assert reports == [
        {"percent": 50},
        {"message": "half\ufffdway"},
        {"percent": 0, "checkpoint": {"row": 3}},
    ]


@pytest.mark.parametrize("percent", [-1, 101, float("nan"), True])
def test_progress_refuses_what_is_no_percent(percent: Any) -> None:
    with pytest.raises(ValueError, match="percent"):
        context().progress(percent)


def test_progress_refuses_a_checkpoint_that_would_not_come_back() -> None:
    with pytest.raises(InvalidJob, match="checkpoint"):
        context().progress(checkpoint={"at": object()})  # type: ignore[dict-item]
