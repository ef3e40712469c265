"""Twenty workers that one deploy restarts at the same instant drift apart."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from awa_django.worker import service as service_module
from awa_django.worker.service import Service
from tests.fault_report import Observe


class Ticking(Service):
    name = "ticking"
    interval = timedelta(seconds=10)

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._fails = fails
        self._wake = _Waits(self)

    def tick(self) -> float | None:
        if self._fails:
            raise RuntimeError("it fails")
        return None

    def close(self) -> None:
        pass


class _Waits(threading.Event):
    """Notes how long the loop would wait, and ends it after ten waits."""

    def __init__(self, service: Ticking) -> None:
        super().__init__()
        self._service = service

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._service.waits.append(timeout)
        if len(self._service.waits) == 10:
            self._service._stopping.set()
        return True


@pytest.mark.fault("U27", injected="20 workers start at once, work, and lose the database at once")
def test_timers_carry_jitter(observe: Observe) -> None:
    quiet = [waits_of(Ticking(fails=False)) for _ in range(20)]
    failing = [waits_of(Ticking(fails=True)) for _ in range(20)]
    # No two workers tick, or connect again, at the same instant, and less and less.
    for all_waits in (quiet, failing):
        sums = sorted(sum(waits) for waits in all_waits)
        assert len(set(sums)) == 20
        assert sums[-1] - sums[0] > 0.01 * sums[0]
    assert all(9.0 <= wait <= 10.0 for waits in quiet for wait in waits)
    longest = service_module.RETRY_SECONDS[1]
    assert all(wait <= longest for waits in failing for wait in waits)
    spread = max(map(sum, failing)) - min(map(sum, failing))
    observe(
        f"ten reconnects of 20 workers end spread over {spread:.1f} s, their ticks over up to 10 % of each"
    )


def waits_of(service: Ticking) -> list[float]:
    service._serve()
    return service.waits
