"""awa-pg 0.5.7: the Rust runtime with async handlers, by COPY."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import awa

from benchmarks.marks import mark
from benchmarks.peers.protocol import serve_async

BATCH = 10_000
WORKERS = 256
QUEUE = "bench"


@dataclass
class Nothing:
    number: int


@cache
def client() -> awa.AsyncClient:
    return awa.AsyncClient(os.environ["DATABASE_URL"])


async def connect() -> None:
    client()


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


async def close() -> None:
    await client().close()


if __name__ == "__main__":
    serve_async(
        connect=connect, setup=setup, enqueue=enqueue, enqueue_many=enqueue_many, work=work, close=close
    )
