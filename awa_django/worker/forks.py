"""Forks: a process that a handler forks is none of the worker's, and must not act as if it were."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from typing import NoReturn

from awa_django.logs import get_logger
from awa_django.worker.django_connections import forget_inherited

logger = get_logger(__name__)

# What a worker's own processes leave to their supervisor, and all others do at once.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_mask = threading.local()
_inherited: list[object] = []
# How many forks lie between the process that imported this and the one that reads it: who finds it grown
# is a fork of who looked before. (A comparison of os.getpid() costs two system calls, 1 us a job.)
depth = 0


def _go_deeper() -> None:
    global depth
    depth += 1


os.register_at_fork(after_in_child=_go_deeper)


def stop_signals() -> list[signal.Signals]:
    """What tells a worker to stop; also that its terminal is gone, which ``nohup`` wants ignored."""
    return [
        number
        for number in _SIGNALS
        if number != signal.SIGHUP or signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    ]


def watch_forks() -> None:
    """From now on, what this process forks forgets what it has of the worker."""
    os.register_at_fork(before=_hold_signals, after_in_parent=_take_signals, after_in_child=_forget_worker)


def leave(exc: BaseException | None) -> NoReturn:
    """End a forked process that came back out of its handler; the job's outcome is its parent's to tell."""
    code: object = 0
    if isinstance(exc, SystemExit):
        code = exc.code or 0
    elif exc is not None:
        traceback.print_exception(exc)
        code = 1
    os._exit(code & 0xFF if isinstance(code, int) else 1)


def _hold_signals() -> None:
    """None may come, and be swallowed, before the new process is itself."""
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _take_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _forget_worker() -> None:
    # It shall end when told to, as `Process.terminate` and `Pool.terminate` do.
    for number in stop_signals():
        is_interrupt = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    _take_signals()
    _inherited.extend(forget_inherited())
