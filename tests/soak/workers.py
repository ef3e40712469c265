"""The soak's workers: each a real ``awa_worker`` behind a proxy of its own, started again when it dies."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.proxy import Proxy
from tests.soak import fake_clock
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

PROCESSES = 2
THREADS = 8
# The number of the worker that lives at another time.
WRONG_CLOCK = 2
# As an init system does: not at once.
RESTART_AFTER = 0.5
SETTINGS: dict[str, Any] = {
    "IMPORTS": ["tests.soak.handlers"],
    "HEARTBEAT_INTERVAL": 1,
    "STALE_AFTER": 5,
    "SWEEP_INTERVAL": 1,
    "PROMOTE_INTERVAL": 0.1,
    "RETENTION": {"queues": {"instant": {"completed": 0}}},
}


class SoakWorker:
    """Worker ``number``. The first is never killed, so that what leaks can be seen in it."""

    def __init__(self, number: int, url: str, env: Mapping[str, str], logs: Path, seed: int) -> None:
        self.number = number
        self.proxy = Proxy(url)
        self.is_veteran = number == 0
        self.starts = 0
        self.exits: list[str] = []
        """Ends that nobody asked for."""
        self.expects_end = False
        self.is_stopping = False
        self._env = {**env, "DATABASE_URL": f"{self.proxy.url}?connect_timeout=5"}
        self._logs = logs
        self._random = random.Random(seed)
        self._restart_at = 0.0
        self._sessions: set[int] = set()
        self._clock = logs / f"clock-{number}"
        self.has_wrong_clock = number == WRONG_CLOCK and fake_clock.library() is not None
        self.set_clock(self._random.choice(fake_clock.SKEWS))
        self._start()

    def _start(self) -> None:
        queues = "default,slow,instant" if self.is_veteran else "default,slow,instant,rough"
        env = dict(self._env)
        if self.has_wrong_clock:
            env |= fake_clock.environment(self._clock)
        self.process = WorkerProcess(
            env,
            self._logs / f"worker-{self.number}-{self.starts}.log",
            f"--queues={queues}",
            f"--processes={PROCESSES}",
            f"--concurrency={THREADS}",
            "--shutdown-timeout=8",
            awa=SETTINGS,
        )
        self._sessions.add(self.process.pid)  # it leads a session of its own
        self.starts += 1
        self.expects_end = False

    def set_clock(self, skew: str) -> None:
        """What its processes believe of the time; nothing happens to those with a right clock."""
        fake_clock.set_clock(self._clock, skew)

    def look(self) -> None:
        """Start it again if it has ended."""
        code = self.process.process.poll()
        if code is None or self.is_stopping:
            return
        if not self._restart_at:
            if not self.expects_end:
                self.exits.append(f"worker {self.number} ended with {code}")
            self._restart_at = time.monotonic() + RESTART_AFTER
        elif time.monotonic() >= self._restart_at:
            self._restart_at = 0.0
            self._start()

    def is_up(self) -> bool:
        return self.process.process.poll() is None

    def child_pids(self) -> list[int]:
        with contextlib.suppress(psutil.Error):
            return self.process.child_pids()
        return []

    def processes(self) -> list[psutil.Process]:
        """All that is left of every start: whatever is in a session that it led."""
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, psutil.Error):
                if os.getsid(pid) in self._sessions and pid != os.getpid():
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def stop(self, timeout: float) -> list[str]:
        """TERM; what was wrong with its end."""
        self.is_stopping = True
        wrong = []
        if self.is_up():
            self.process.signal(signal.SIGTERM)
            try:
                code = self.process.wait(timeout)
            except AssertionError:
                wrong.append(f"worker {self.number} did not stop within {timeout} s")
            else:
                if code:
                    wrong.append(f"worker {self.number} ended with {code} at a stop with nothing to do")
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.processes(), timeout=5)
        wrong += [f"worker {self.number} left process {process.pid}" for process in self.processes()]
        return wrong

    def close(self) -> None:
        """Kill whatever is left."""
        self.is_stopping = True
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.process.wait(10)
        self.proxy.close()
