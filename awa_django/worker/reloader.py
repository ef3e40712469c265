"""Reload in development: when a source file changes, stop soon, give jobs back, and start anew."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
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
    """Run the worker; replace this process by a new one of the same command when a file changed.

    A file that is saved half-written does not end it: it waits until the code loads again.
    """
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
        try:
            _wait_until_it_loads()
        except KeyboardInterrupt:
            return code
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


def _wait_until_it_loads() -> None:
    """Until Django is set up and its checks pass in a process of its own, which says what is wrong."""
    # The next process would meet what this one meets, but for the options of the worker's own.
    own_count = len(sys.argv) - 1
    command = [sys.executable, *_arguments()[: -own_count or None]]
    command.append("help" if "--skip-checks" in sys.argv else "check")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # --pythonpath is one of them
    while True:
        seen = _modified_times(beside=True)
        done = subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL)
        if done.returncode == 0:
            return
        logger.error("the changed code does not start: waiting until it changes again")
        while _modified_times(beside=True) == seen:
            time.sleep(LOOK_EVERY)


def _modified_times(*, beside: bool = False) -> dict[Path, float]:
    """When the modules' files were changed last; and those beside them, which may be imported now."""
    paths: set[Path] = set(autoreload.iter_all_python_module_files())
    if beside:
        paths = {
            *paths,
            *(path for folder in {each.parent for each in paths} for path in folder.glob("*.py")),
        }
    times = {}
    for path in paths:
        try:
            times[path] = path.stat().st_mtime
        except OSError:
            continue  # deleted between the look and the stat
    return times


def _arguments() -> list[str]:
    """What the interpreter was started with: a script, or ``-m package``."""
    return autoreload.get_child_arguments()[1:]
