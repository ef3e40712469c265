"""The jobs that the benchmarks run."""

from __future__ import annotations

import asyncio
import time

from awa_django import job
from benchmarks import marks

IO_SECONDS = 0.001
NAP_SECONDS = 0.1


@job()
def nothing(number: int = 0) -> None:
    pass


@job()
async def nothing_async(number: int = 0) -> None:
    pass


@job()
def wait(number: int = 0) -> None:
    """A millisecond of I/O."""
    time.sleep(IO_SECONDS)


@job()
async def wait_async(number: int = 0) -> None:
    await asyncio.sleep(IO_SECONDS)


@job()
def nap(number: int = 0) -> None:
    time.sleep(NAP_SECONDS)


@job()
def mark(number: int = 0) -> None:
    marks.mark(number)
