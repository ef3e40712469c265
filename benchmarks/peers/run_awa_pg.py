"""awa-pg 0.5.7: the Rust runtime with async handlers, by COPY."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import awa

from benchmarks.marks import mark
from benchmarks.peers.protocol import Queue, serve

BATCH = 10_000
WORKERS = 256
QUEUE = "bench"
loop = asyncio.Runner()


@dataclass
class Nothing:
    number: int


def client() -> awa.AsyncClient:
    if not opened:
        opened.append(awa.AsyncClient(os.environ["DATABASE_URL"]))
    return opened[0]


opened: list[awa.AsyncClient] = []


async def setup() -> None:
    await client().migrate()


async def enqueue(number: int) -> None:
    await client().insert(Nothing(number), queue=QUEUE)


async def enqueue_many(count: int, at: float | None) -> None:
    run_at = datetime.fromtimestamp(at, UTC).isoformat() if at else None
    for start in range(0, count, BATCH):
        jobs = [Nothing(number) for number in range(start, min(start + BATCH, count))]
        await client().insert_many_copy(jobs, queue=QUEUE, run_at=run_at)


async def work() -> None:
    @client().task(Nothing, queue=QUEUE)
    async def nothing(job: Any) -> None:
        mark(job.args.number)

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await client().start([(QUEUE, WORKERS)])
    await ended.wait()
    await client().shutdown()


if __name__ == "__main__":
    serve(
        Queue(
            setup=lambda: loop.run(setup()),
            enqueue=lambda number: loop.run(enqueue(number)),
            enqueue_many=lambda count, at: loop.run(enqueue_many(count, at)),
            work=lambda: loop.run(work()),
        )
    )
