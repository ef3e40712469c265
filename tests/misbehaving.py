"""Jobs whose handlers do to their process what handlers should not, for the tests of faults."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from django.db import connection

from awa_django import Fixed, JobContext, job
from tests.handlers import effect

SOON = Fixed(wait=0.1)


@job(takes_context=True, max_attempts=3, retry=SOON)
def outside_effect(context: JobContext) -> None:
    """An effect outside of the queue's control, under the token that a handler has for it."""
    effect("outside", context.job_id)


@job(max_attempts=3, retry=SOON)
def poison() -> None:
    effect("poison")
    os.kill(os.getpid(), signal.SIGKILL)


@job(max_attempts=2, retry=SOON)
def kill_twice() -> None:
    effect("kill_twice")
    os.kill(os.getpid(), signal.SIGKILL)


@job(max_attempts=1)
def crash(how: str) -> None:
    effect("crash")
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "exit":
            os._exit(0)


@job(takes_context=True, max_attempts=2, retry=SOON)
def slow_at_first(context: JobContext, seconds: float) -> None:
    """The first run sleeps and tells whether it was asked to stop; the second one waits for "go on"."""
    effect("started", context.run_lease)
    if context.run_lease == 1:
        give_up_at = time.monotonic() + seconds
        while time.monotonic() < give_up_at and not context.is_cancelled:
            time.sleep(0.02)
        effect("told to stop" if context.is_cancelled else "not told to stop")
    else:
        give_up_at = time.monotonic() + 60
        while not _has_happened("go on") and time.monotonic() < give_up_at:
            time.sleep(0.05)
    effect("ended", context.run_lease)


@job(takes_context=True, timeout=0.4, max_attempts=2, retry=SOON)
def obedient(context: JobContext) -> None:
    """Looks at its deadline, and gives up when it has passed."""
    effect("obedient", context.attempt)
    while not context.is_cancelled:
        time.sleep(0.01)
    raise TimeoutError("the deadline has passed")


@job(timeout=0.8, max_attempts=1)
def within_timeout(seconds: float, number: int) -> None:
    effect("within", number)
    time.sleep(seconds)


@job(timeout=0.3, max_attempts=1)
async def block_the_loop(seconds: float) -> None:
    effect_in_thread = asyncio.to_thread(effect, "started")
    await effect_in_thread
    time.sleep(seconds)  # noqa: ASYNC251  (that is the misbehaviour)


@job(max_attempts=1)
async def end_the_loop(how: str) -> None:
    """What ends an event loop must not end the jobs beside."""

    async def leave() -> None:
        raise SystemExit(3)

    if how == "stop":
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
    else:
        await asyncio.create_task(leave())


@job(max_attempts=1)
def leave_threads(number: int) -> None:
    """Threads of its own that raise, exit, or go on for ever."""
    threading.excepthook = lambda args: None
    for target in (_leave, _divide, threading.Event().wait):
        threading.Thread(target=target, daemon=True).start()
    effect("left threads", number)


@job(max_attempts=2, retry=SOON)
def use_up_memory() -> None:
    """Allocate beyond the address space that the process may have."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, before[1]))
    try:
        hoard = []
        while True:
            hoard.append(bytearray(2**24))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@job(takes_context=True, max_attempts=2, retry=SOON)
def hoard_at_first(context: JobContext, most: int) -> None:
    """Takes memory, page by page, until the kernel kills the process; ``most`` spares the machine."""
    effect("hoard", context.attempt)
    hoard = [b"x" * 2**22 for _ in range(most // 2**22) if context.attempt == 1]
    if hoard:
        raise AssertionError("the kernel let it take all of it")


@job(max_attempts=1)
def fork(how: str) -> None:
    """Processes made by a handler, which are none of the worker's."""
    effect("before fork")  # so that there is a connection that a fork inherits
    FORKS[how]()
    effect("after fork")


@job(max_attempts=1)
def raise_odd(what: str) -> None:
    match what:
        case "recursion":
            raise_odd(what)
        case "huge":
            raise ValueError("x" * 100_000_000)
        case "chain":
            _raise_chain(2_000)
        case "group":
            raise ExceptionGroup("many", [ValueError(str(number)) for number in range(10_000)])
        case "ansi":
            raise ValueError("\x1b[31mred\x1b[0m\n\r\u202eforged \x00 line")
        case "no text":
            raise _NoTextError
        case "no class":
            raise _odd_class()


def _has_happened(name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM effects WHERE name = %s)", [name])
        return bool(cursor.fetchone()[0])


def _leave() -> None:
    sys.exit(5)


def _divide() -> None:
    raise ZeroDivisionError


def _raise_chain(depth: int) -> None:
    error: Exception = ValueError("the first")
    for number in range(depth):
        following = ValueError(f"number {number}")
        following.__cause__ = error
        error = following
    raise error


class _NoTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _odd_class() -> BaseException:
    odd: type[Exception] = type("Odd\x00\ud800" * 1000, (Exception,), {"__module__": "odd\x00"})
    return odd()


def _fork_and(act: str) -> None:
    """Fork; the child acts, and must be gone soon."""
    pid = os.fork()
    if pid == 0:
        _ACTS[act]()
        raise _ReturnedInChild  # out of the handler, into the worker's own code
    give_up_at = time.monotonic() + 30
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > give_up_at:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("the forked process goes on")
        time.sleep(0.01)


class _ReturnedInChild(Exception):
    """Leaves the handler in the forked process."""


def _use_database() -> None:
    effect("in fork")
    os._exit(0)


def _run_program() -> None:
    subprocess.run([sys.executable, "-c", "import sys; sys.exit(0)"], check=True, timeout=30)


def _use_pool() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]


def _end_process() -> None:
    for _ in range(10):  # a signal may come in the very moment of the fork
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        process.start()
        process.terminate()
        process.join(30)
        assert process.exitcode == -signal.SIGTERM, process.exitcode


_ACTS: dict[str, Callable[[], object]] = {
    "exit": partial(os._exit, 0),
    "sys.exit": _leave,
    "return": lambda: None,
    "database": _use_database,
}
FORKS: dict[str, Callable[[], object]] = {
    **{f"fork, {act}": partial(_fork_and, act) for act in _ACTS},
    "subprocess": _run_program,
    "pool": _use_pool,
    "terminate": _end_process,
}
