"""The soak's jobs. Each says in the ledger when it starts and how it ends; ``ENDS`` says how it may."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import time
from collections.abc import Iterator

from django.db import connection

from awa_django import Cancel, Fixed, JobContext, Snooze, Unique, job, periodic
from tests.soak import fake_clock, ledger

fake_clock.repair_sleep()

SOON = Fixed(wait=0.3)
# Served by the workers that the nemesis kills: these end whole processes.
ROUGH = "rough"
# Jobs of this queue are deleted when they complete.
INSTANT = "instant"

# How a job of each kind has to end, whatever happens on the way; None: deleted at its completion.
ENDS: dict[str, set[str | None]] = {
    "soak.quick": {"completed"},
    "soak.quick_async": {"completed"},
    "soak.slow": {"completed"},
    "soak.fail_once": {"completed"},
    "soak.always_fail": {"failed"},
    "soak.snooze_once": {"completed"},
    "soak.cancel_itself": {"cancelled"},
    "soak.atomic": {"completed"},
    "soak.overdue_async": {"failed"},
    "soak.unique": {"completed"},
    "soak.instant": {None},
    "soak.every_minute": {"completed"},
    "soak.hold_gil": {"completed"},
    "soak.kill_own_process": {"failed"},
    "soak.stubborn": {"failed"},
    "soak.strict": {"failed"},
    "soak.rival": {"completed", "cancelled"},
}


@contextlib.contextmanager
def in_ledger(context: JobContext) -> Iterator[None]:
    """Write down the start, and the end: ``returned`` or ``raised``."""

    def note(phase: str) -> None:
        ledger.write(
            "handler",
            phase=phase,
            id=context.job_id,
            lease=context.run_lease,
            attempt=context.attempt,
            pid=os.getpid(),
        )

    note("start")
    try:
        yield
    except BaseException:
        note("raised")
        raise
    note("returned")


@job(kind="soak.quick", takes_context=True, retry=SOON)
def quick(context: JobContext, token: str) -> None:
    with in_ledger(context):
        pass


@job(kind="soak.quick_async", takes_context=True, retry=SOON)
async def quick_async(context: JobContext, token: str) -> None:
    with in_ledger(context):
        await asyncio.sleep(0.01)


@job(kind="soak.slow", queue="slow", takes_context=True, retry=SOON)
def slow(context: JobContext, token: str, seconds: float) -> None:
    with in_ledger(context):
        give_up_at = time.monotonic() + seconds
        while not context.is_cancelled and time.monotonic() < give_up_at:
            time.sleep(0.05)


@job(kind="soak.fail_once", takes_context=True, retry=SOON)
def fail_once(context: JobContext, token: str) -> None:
    with in_ledger(context):
        if context.attempt == 1:
            raise RuntimeError("the first attempt fails")


@job(kind="soak.always_fail", takes_context=True, max_attempts=3, retry=SOON)
def always_fail(context: JobContext, token: str) -> None:
    with in_ledger(context):
        raise ValueError("it never works")


@job(kind="soak.snooze_once", takes_context=True, retry=SOON)
def snooze_once(context: JobContext, token: str) -> Snooze | None:
    with in_ledger(context):
        if context.checkpoint is None:
            context.progress(50, "halfway", checkpoint={"page": 1})
            return Snooze(0.3)
        return None


@job(kind="soak.cancel_itself", takes_context=True, retry=SOON)
def cancel_itself(context: JobContext, token: str) -> Cancel:
    with in_ledger(context):
        return Cancel("nothing to do")


@job(kind="soak.atomic", takes_context=True, atomic=True, retry=SOON)
def atomic(context: JobContext, token: str) -> None:
    with in_ledger(context), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO soak.effects (job_id, run_lease) VALUES (%s, %s)",
            [context.job_id, context.run_lease],
        )


@job(kind="soak.overdue_async", takes_context=True, max_attempts=2, retry=SOON, timeout=0.5)
async def overdue_async(context: JobContext, token: str) -> None:
    with in_ledger(context):
        await asyncio.sleep(60)


@job(kind="soak.unique", takes_context=True, retry=SOON, unique=Unique(args=("account",)))
def unique(context: JobContext, token: str, account: int) -> None:
    with in_ledger(context):
        time.sleep(0.1)


@job(kind="soak.instant", queue=INSTANT, takes_context=True, retry=SOON)
def instant(context: JobContext, token: str) -> None:
    with in_ledger(context):
        pass


@periodic("* * * * *", timezone="UTC")
@job(kind="soak.every_minute", takes_context=True, retry=SOON)
def every_minute(context: JobContext) -> None:
    with in_ledger(context):
        pass


@job(kind="soak.strict", takes_context=True, retry=SOON)
def strict(context: JobContext, token: str, number: int) -> None:
    """Its jobs come by SQL, with arguments that it cannot take: it never starts."""
    with in_ledger(context):
        pass


@job(kind="soak.rival", takes_context=True, retry=SOON)
def rival(context: JobContext, token: str, number: str) -> None:
    """Its jobs come by SQL, with a key that they want when they are completed: the second one cannot be."""
    with in_ledger(context):
        pass


@job(kind="soak.hold_gil", queue=ROUGH, takes_context=True, retry=SOON)
def hold_gil(context: JobContext, token: str) -> None:
    """Nothing else runs in this process meanwhile: PyDLL does not give up the GIL."""
    with in_ledger(context):
        ctypes.PyDLL(None).usleep(2_500_000)


@job(kind="soak.kill_own_process", queue=ROUGH, takes_context=True, max_attempts=2, retry=SOON)
def kill_own_process(context: JobContext, token: str) -> None:
    with in_ledger(context):
        os.kill(os.getpid(), 9)


@job(kind="soak.stubborn", queue=ROUGH, takes_context=True, max_attempts=1, timeout=0.5)
def stubborn(context: JobContext, token: str) -> None:
    """Past its timeout and deaf to it: its process has to go."""
    with in_ledger(context):
        time.sleep(60)
