"""A real ``manage.py awa_worker`` that a test starts, kills and stops."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.waiting import wait_until

PROJECT_DIR = Path(__file__).resolve().parent.parent
START_TIMEOUT = 60.0


class WorkerProcess:
    """Started at once, with its log in a file; ``arguments`` are the command's own. It does not outlive us.

    ``project`` is the directory whose ``manage.py`` it is: another release's code.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        log: Path,
        *arguments: str,
        awa: Mapping[str, Any] | None = None,
        project: Path = PROJECT_DIR,
    ) -> None:
        self.log = log
        self._env = {
            **env,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "TEST_AWA": json.dumps(awa or {}),
        }
        # The kernel tells of the end of a thread. Only that of the main one is the end of the process.
        if threading.current_thread() is threading.main_thread():
            self._env["TEST_STARTED_BY"] = str(os.getpid())
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(project / "manage.py"), "awa_worker", *arguments],
                env=self._env,
                cwd=project,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    def wait_ready(self, connection: psycopg.Connection[Any], children: int = 1) -> None:
        """Until so many children serve: their claimers have connected."""

        def ready() -> bool:
            assert self.process.poll() is None, f"the worker ended: {self.text()}"
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'awa-%-claim' "
                "AND datname = current_database()"
            ).fetchone()
            return row is not None and row[0] >= children

        wait_until(ready, timeout=START_TIMEOUT, message=self.text)

    def child_pids(self) -> list[int]:
        """The processes that run handlers."""
        found = []
        for process in psutil.Process(self.pid).children(recursive=True):
            try:
                command = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if "forkserver" in command and process.ppid() != self.pid:
                found.append(process.pid)
        return found

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float = 60.0) -> int:
        """Its exit code."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired as exc:
            raise AssertionError(f"the worker did not end within {timeout} s: {self.text()}") from exc

    def stop(self, timeout: float = 60.0) -> int:
        """TERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill_all(self) -> None:
        """The machine is gone: supervisor, forkserver and children at once."""
        os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(60)

    def end(self) -> None:
        """Kill whatever of it is left (its session's whole process group)."""
        if self.process.poll() is None:
            for child in psutil.Process(self.pid).children(recursive=True):
                _kill(child.pid)
            self.process.kill()
            self.process.wait(60)
        with contextlib.suppress(ProcessLookupError):  # children that outlived a supervisor
            os.killpg(self.pid, signal.SIGKILL)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
