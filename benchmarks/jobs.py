"""The jobs that the benchmarks run."""

from __future__ import annotations

from awa_django import job


@job()
def nothing(number: int = 0) -> None:
    pass


@job()
async def nothing_async(number: int = 0) -> None:
    pass
