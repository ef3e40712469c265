"""procrastinate: async jobs, many at once, by batch_defer."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime

import procrastinate

from benchmarks.marks import mark
from benchmarks.peers.protocol import serve_async

BATCH = 1_000
CONCURRENCY = 20
logging.getLogger("procrastinate").setLevel(logging.ERROR)
connector = procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"], min_size=4, max_size=24)
app = procrastinate.App(connector=connector)


@app.task(queue="bench", pass_context=False)
async def nothing(number: int) -> None:
    mark(number)


async def connect() -> None:
    await app.open_async()


async def setup() -> None:
    await app.schema_manager.apply_schema_async()


async def enqueue(number: int) -> None:
    await nothing.defer_async(number=number)


async def enqueue_many(count: int, at: float | None) -> None:
    later = nothing.configure(schedule_at=datetime.fromtimestamp(at, UTC) if at else None)
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        await later.batch_defer_async(*({"number": number} for number in numbers))


async def work() -> None:
    await app.run_worker_async(concurrency=CONCURRENCY, queues=["bench"], fetch_job_polling_interval=1.0)


async def close() -> None:
    await app.close_async()


if __name__ == "__main__":
    serve_async(
        connect=connect, setup=setup, enqueue=enqueue, enqueue_many=enqueue_many, work=work, close=close
    )
