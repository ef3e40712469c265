"""Jobs that tests run in real worker processes. Each leaves a row in ``effects`` for each start and end."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from awa_django import Cancel, Fixed, JobContext, RetryAfter, Snooze, TerminalError, job

SOON = Fixed(wait=0.2)


def effect(name: str, number: int = 0) -> None:
    """Commit that something happened."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO effects (name, number, pid) VALUES (%s, %s, %s)", [name, number, os.getpid()]
        )


@job()
def record(number: int) -> None:
    effect("record", number)


@job()
async def record_async(number: int) -> None:
    await sync_to_async(effect)("record_async", number)


@job()
def nothing(number: int = 0) -> None:
    pass


@job(takes_context=True, max_attempts=3, retry=Fixed(wait=0.05))
def fail_once(context: JobContext, number: int) -> None:
    if context.attempt == 1:
        raise RuntimeError("the first attempt fails")
    effect("fail_once", number)


@job(max_attempts=2, retry=Fixed(wait=0.05))
def always_fail() -> None:
    effect("always_fail")
    raise ValueError("it never works")


@job()
def nothing_after(seconds: float, number: int = 0) -> None:
    """Slow, and never asks the database."""
    time.sleep(seconds)


@job()
async def nothing_after_async(seconds: float, number: int = 0) -> None:
    await asyncio.sleep(seconds)


def _wait_for(path: str) -> None:
    """Until the file is there, or nobody can be waiting any more."""
    gave_up_at = time.monotonic() + 100
    while not Path(path).exists() and time.monotonic() < gave_up_at:
        time.sleep(0.02)


@job()
def until(path: str, number: int = 0) -> None:
    """Goes on until the test makes a file."""
    effect("started", number)
    _wait_for(path)
    effect("ended", number)


@job(takes_context=True, max_attempts=3, retry=SOON)
def until_first(context: JobContext, path: str, number: int = 0) -> None:
    """Waits in the first attempt only."""
    effect("started", number)
    if context.attempt == 1:
        _wait_for(path)
    effect("ended", number)


@job()
def nothing_until(path: str, number: int = 0) -> None:
    """Never asks the database."""
    _wait_for(path)


@job()
async def nothing_until_async(path: str, number: int = 0) -> None:
    await asyncio.to_thread(_wait_for, path)


@job()
def sleep(seconds: float, number: int = 0) -> None:
    effect("started", number)
    time.sleep(seconds)
    effect("ended", number)


@job(takes_context=True, max_attempts=3, retry=SOON)
def sleep_first(context: JobContext, seconds: float, number: int = 0) -> None:
    """Slow in the first attempt only, so that what is killed runs again quickly."""
    effect("started", number)
    if context.attempt == 1:
        time.sleep(seconds)
    effect("ended", number)


@job(max_attempts=2, retry=Fixed(wait=2))
def kill_own_process() -> None:
    effect("kill_own_process")
    os.kill(os.getpid(), 9)


@job(max_attempts=1)
def exit_hard() -> None:
    os._exit(7)


@job(max_attempts=1)
def raise_base(name: str) -> None:
    raise {
        "SystemExit": SystemExit(3),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "GeneratorExit": GeneratorExit(),
        "CancelledError": asyncio.CancelledError(),
    }[name]


@job(max_attempts=1)
async def raise_base_async(name: str) -> None:
    raise_base(name)


@job(max_attempts=1)
def exit_thread() -> None:
    raise SystemExit


@job(max_attempts=1)
def hold_gil(pipe: str) -> None:
    """Until somebody writes to the named pipe nothing else runs in this process: PyDLL keeps the GIL."""
    effect("started")
    os.close(ctypes.PyDLL(None).open(pipe.encode(), os.O_RDONLY))
    effect("ended")


@job(takes_context=True)
def snooze_once(context: JobContext) -> Snooze | None:
    effect("snooze_once", context.attempt)
    if context.checkpoint is None:
        context.progress(50, "halfway", checkpoint={"page": 1})
        return Snooze(0.1)
    return None


@job()
def snooze_always(seconds: float) -> Snooze:
    effect("snooze_always")
    return Snooze(seconds)


@job(takes_context=True)
def snooze_often(context: JobContext, number: int) -> Snooze | None:
    """Runs five times, a moment each, on its way through both tables."""
    time.sleep(0.02)
    return Snooze(0.01) if context.run_lease < 5 else None


@job(max_attempts=1)
def idle_in_transaction(seconds: float) -> None:
    with transaction.atomic():
        effect("idle")
        time.sleep(seconds)
        effect("not idle any more")


@job(max_attempts=2)
def retry_after() -> RetryAfter:
    effect("retry_after")
    return RetryAfter(0.05, "the other side is busy")


@job()
def cancel_itself() -> Cancel:
    return Cancel("nothing to do")


@job()
def fail_for_good() -> None:
    raise TerminalError("no use in trying again")


@job(timeout=0.3, max_attempts=1)
async def overdue_async() -> None:
    await asyncio.sleep(60)


@job(timeout=0.3, max_attempts=1)
def overdue_stubborn(seconds: float) -> None:
    effect("started")
    time.sleep(seconds)


@job(takes_context=True, max_attempts=1)
def until_cancelled(context: JobContext) -> None:
    effect("started")
    gave_up_at = time.monotonic() + 60
    while not context.is_cancelled and time.monotonic() < gave_up_at:
        time.sleep(0.02)
    effect("saw the cancel" if context.is_cancelled else "never told")


@job(takes_context=True, max_attempts=1)
async def until_cancelled_async(context: JobContext) -> None:
    await sync_to_async(effect)("started")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.shield(sync_to_async(effect)("saw the cancel"))
        raise


@job(atomic=True, takes_context=True, max_attempts=3, retry=SOON)
def atomic_effect(context: JobContext, number: int, die: bool = False) -> None:
    effect("atomic", number)
    if die and context.attempt == 1:
        os.kill(os.getpid(), 9)


@job(takes_context=True, max_attempts=2, retry=SOON)
def checkpointed(context: JobContext) -> None:
    """Dies once its checkpoint is stored."""
    if context.attempt > 1:
        assert isinstance(context.checkpoint, int)
        effect("checkpoint", context.checkpoint)
        return
    context.progress(70, "most of it", checkpoint=7)
    stored = None
    while stored is None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT progress FROM awa.jobs_hot WHERE id = %s", [context.job_id])
            [(stored,)] = cursor.fetchall()
    os.kill(os.getpid(), 9)


@job(atomic=True, max_attempts=1)
def atomic_failure() -> None:
    effect("atomic failure")
    raise RuntimeError("rolled back")


@job(keep_result=True)
def give(what: str) -> object:
    """Results that JSON or PostgreSQL cannot hold, by name."""
    loop: list[object] = []
    loop.append(loop)
    return {
        "plain": {"answer": 42},
        "set": {1, 2},
        "bytes": b"\x00\xff",
        "nan": float("nan"),
        "huge": 10**30,
        "nul": "a\x00b",
        "surrogate": "\ud800",
        "recursive": loop,
        "generator": (each for each in range(3)),
        "object": threading.Lock(),
    }[what]


@job(keep_result=True)
def echo(value: object) -> object:
    return value


@job(max_attempts=1)
def raise_text(what: str) -> None:
    raise ValueError({"nul": "a\x00b", "surrogate": "\ud800", "long": "x" * 1_000_000}[what])
