"""pgqueuer: asyncpg, large batches, an async entrypoint."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta
from functools import cache
from typing import Any

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from benchmarks.marks import mark
from benchmarks.peers.protocol import serve_async

BATCH = 1_000
ENTRYPOINT = "nothing"
connections: list[asyncpg.Connection] = []


async def connect() -> None:
    connections.append(await asyncpg.connect(os.environ["DATABASE_URL"]))


@cache
def queries() -> Queries:
    return Queries(AsyncpgDriver(connections[0]))


async def setup() -> None:
    await queries().install()


async def enqueue(number: int) -> None:
    await queries().enqueue(ENTRYPOINT, b"%d" % number)


async def enqueue_many(count: int, at: float | None) -> None:
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        after = [timedelta(seconds=at - time.time())] * size if at else None
        payloads = [b"%d" % number for number in range(start, start + size)]
        await queries().enqueue([ENTRYPOINT] * size, payloads, [0] * size, after)


async def work() -> None:
    manager = QueueManager(queries())

    @manager.entrypoint(ENTRYPOINT)
    async def nothing(job: Any) -> None:
        mark(int(job.payload))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.shutdown.set)
    await manager.run(batch_size=BATCH)


async def close() -> None:
    await connections[0].close()


if __name__ == "__main__":
    serve_async(
        connect=connect, setup=setup, enqueue=enqueue, enqueue_many=enqueue_many, work=work, close=close
    )
