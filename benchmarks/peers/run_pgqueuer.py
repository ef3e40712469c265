"""pgqueuer: asyncpg, large batches, an async entrypoint."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from benchmarks.marks import mark
from benchmarks.peers.protocol import Queue, serve

BATCH = 1_000
ENTRYPOINT = "nothing"
loop = asyncio.Runner()
opened: list[Queries] = []


async def queries() -> Queries:
    if not opened:
        connection = await asyncpg.connect(os.environ["DATABASE_URL"])
        opened.append(Queries(AsyncpgDriver(connection)))
    return opened[0]


async def setup() -> None:
    await (await queries()).install()


async def enqueue(number: int) -> None:
    await (await queries()).enqueue(ENTRYPOINT, b"%d" % number)


async def enqueue_many(count: int, at: float | None) -> None:
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        after = [timedelta(seconds=at - time.time())] * size if at else None
        payloads = [b"%d" % number for number in range(start, start + size)]
        await (await queries()).enqueue([ENTRYPOINT] * size, payloads, [0] * size, after)


async def work() -> None:
    manager = QueueManager(await queries())

    @manager.entrypoint(ENTRYPOINT)
    async def nothing(job: Any) -> None:
        mark(int(job.payload))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.shutdown.set)
    await manager.run(batch_size=BATCH)


if __name__ == "__main__":
    serve(
        Queue(
            setup=lambda: loop.run(setup()),
            enqueue=lambda number: loop.run(enqueue(number)),
            enqueue_many=lambda count, at: loop.run(enqueue_many(count, at)),
            work=lambda: loop.run(work()),
        )
    )
