"""Inline: a job runs where it is enqueued, through the table all the same."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from django.conf import settings
from django.test import TestCase, override_settings

from awa_django.conf import get_settings
from awa_django.testing.running import Run, run_available

# A test that enqueues more in one go has a handler that enqueues itself.
MOST_JOBS = 1_000


class _Waiting(threading.local):
    """The jobs that wait for the running one, on this thread; None while none runs."""

    jobs: deque[int] | None = None


_waiting = _Waiting()
_collecting: list[list[Run]] = []


@contextmanager
def inline(when: Literal["enqueue", "commit"] = "enqueue") -> Iterator[list[Run]]:
    """Run each job of the block where it is enqueued; the runs, in a list that grows.

    With ``commit`` it runs when the transaction around its enqueue commits. In a ``TestCase``, which
    never commits, that is the end of the block, where whatever ``transaction.on_commit`` was given runs.
    Jobs for later wait for ``drain``. How a run ends is no error of whoever enqueues.
    """
    runs: list[Run] = []
    _collecting.append(runs)
    try:
        with ExitStack() as stack:
            stack.enter_context(override_settings(AWA={**getattr(settings, "AWA", {}), "INLINE": when}))
            if when == "commit":
                alias = get_settings().database
                stack.enter_context(TestCase.captureOnCommitCallbacks(using=alias, execute=True))
            yield runs
    finally:
        _collecting.remove(runs)


def run_enqueued(job_ids: Iterable[int]) -> None:
    """Run these jobs and then what their handlers enqueue; those of a handler wait until it ends.

    Raises:
        AssertionError: ``MOST_JOBS`` have run and there are more.
    """
    if _waiting.jobs is not None:
        _waiting.jobs.extend(job_ids)
        return
    _waiting.jobs = deque(job_ids)
    try:
        left = max(MOST_JOBS, len(_waiting.jobs))
        while _waiting.jobs:
            if not left:
                raise AssertionError(
                    f"{MOST_JOBS} jobs have run and there are more: does one enqueue itself?"
                )
            left -= 1
            run = run_available(_waiting.jobs.popleft())
            if run is not None:
                for runs in _collecting:
                    runs.append(run)
    finally:
        _waiting.jobs = None
