"""The processes that the demo starts: a worker, and for ``--web`` the development server."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.conf import settings

MANAGE = Path(settings.BASE_DIR) / "manage.py"
# Longer than the worker itself gives its running jobs.
PATIENCE = 60
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def running(*arguments: str, output: IO[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """``manage.py ARGUMENTS`` for as long as the block runs; then SIGTERM, and SIGKILL if that is ignored.

    In a process group of its own: Ctrl-C reaches the demo alone, which then stops it in an orderly way.
    """
    process = subprocess.Popen(
        [sys.executable, str(MANAGE), *arguments], stdout=output, stderr=output, text=True, process_group=0
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """KeyboardInterrupt for SIGTERM and SIGHUP too, so that every way to end the demo ends its processes.

    And for SIGINT, which a script's background job would ignore.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    former = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
