"""Wait for what another thread or process does, on a condition and with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    *,
    timeout: float = 60,
    interval: float = 0.02,
    message: str | Callable[[], str] = "",
) -> T:
    """Call the condition until its answer is true, and return that answer.

    ``timeout`` and ``interval`` are in seconds; a loaded machine may stand still for several of them, and
    patience costs nothing where the answer comes. ``message`` says what was waited for; a callable is
    asked only at the end, so it can tell the last state seen.

    Raises:
        AssertionError: the answer was still false after ``timeout``.
    """
    give_up_at = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= give_up_at:
            said = message() if callable(message) else message
            raise AssertionError(
                f"still waiting after {timeout} s: {said or condition!r} (last answer: {answer!r})"
            )
        time.sleep(interval)
