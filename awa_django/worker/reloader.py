"""Reload in development: when a source file changes, stop soon, give jobs back, and start anew."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from django.utils import autoreload

from awa_django.logs import get_logger
from awa_django.worker.supervisor import Supervisor

logger = get_logger(__name__)

LOOK_EVERY = 1.0
# A person waits for the reload; jobs that take longer are given back and run again.
RELOAD_TIMEOUT = timedelta(seconds=2)


def run_with_reloader(supervisor: Supervisor) -> int:
    """Run the worker; replace this process by a new one of the same command when a file changed."""
    supervisor.options = replace(
        supervisor.options, shutdown_timeout=min(supervisor.options.shutdown_timeout, RELOAD_TIMEOUT)
    )
    changed = threading.Event()
    over = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(supervisor, changed, over), name="awa-reloader", daemon=True
    )
    watcher.start()
    code = supervisor.run()
    over.set()
    watcher.join()
    if changed.is_set():
        os.execv(  # noqa: S606  (the command that this process was started with)
            sys.executable, [sys.executable, *_arguments()]
        )
    return code


def _watch(supervisor: Supervisor, changed: threading.Event, over: threading.Event) -> None:
    before = _modified_times()
    while not over.wait(LOOK_EVERY):
        now = _modified_times()
        difference = sorted(str(path) for path, at in now.items() if before.get(path, at) != at)
        if difference:
            logger.info("%s changed, reloading", ", ".join(difference))
            changed.set()
            supervisor.stop("reloading")
            return
        before = now


def _modified_times() -> dict[Path, float]:
    times = {}
    for path in autoreload.iter_all_python_module_files():
        try:
            times[path] = path.stat().st_mtime
        except OSError:
            continue  # deleted between the look and the stat
    return times


def _arguments() -> list[str]:
    """What the interpreter was started with: a script, or ``-m package``."""
    return autoreload.get_child_arguments()[1:]
