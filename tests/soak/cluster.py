"""A durable PostgreSQL of the soak's own, which it starts, crashes and throws away."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from typing import Any

import psycopg

from example_project import embedded_postgres as embedded
from tests.waiting import wait_until

START_TRIES = 5


class SoakCluster:
    """The embedded binaries (or those that ``EMBEDDED_POSTGRES`` names), with fsync on."""

    def __init__(self) -> None:
        name = f"soak-{os.getpid()}"
        self._cluster = embedded.prepare(name, embedded.PROJECT_DIR)
        self.url = embedded.ensure_running(name)
        self.restart_count = 0

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A connection past all proxies, in autocommit."""
        return psycopg.connect(
            self.url, **{"autocommit": True, "application_name": "soak", "connect_timeout": 10, **options}
        )

    def crash(self) -> None:
        """Stop at once: whoever is connected is cut off, and the next start has to recover."""
        self._control("stop", "--mode=immediate")

    def start(self) -> None:
        """Start it again; more than once, as the last processes of a crashed server hold its memory."""
        for _ in range(START_TRIES):
            done = self._control("start", f"--log={self._cluster.log}", "--wait", "--timeout=60")
            if not done.returncode:
                self.restart_count += 1
                return
            time.sleep(1)
        raise RuntimeError(f"PostgreSQL does not start: {done.stdout}")

    def remove(self) -> None:
        """Stop it, and delete its data."""
        self._control("stop", "--mode=immediate")
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not (self._cluster.data / "postmaster.pid").exists(), timeout=20)
        shutil.rmtree(self._cluster.home, ignore_errors=True)

    def _control(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return embedded.server.run(self._cluster, "pg_ctl", f"--pgdata={self._cluster.data}", *arguments)
