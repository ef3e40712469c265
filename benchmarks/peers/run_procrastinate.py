"""procrastinate: async jobs, many at once, by batch_defer."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import UTC, datetime

import procrastinate

from benchmarks.marks import mark
from benchmarks.peers.protocol import Queue, serve

BATCH = 1_000
CONCURRENCY = 20
connector = procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"], min_size=4, max_size=24)
app = procrastinate.App(connector=connector)
logging.getLogger("procrastinate").setLevel(logging.ERROR)
loop = asyncio.Runner()
opened = False


@app.task(queue="bench", pass_context=False)
async def nothing(number: int) -> None:
    mark(number)


async def open_app() -> None:
    global opened
    if not opened:
        await app.open_async()
        opened = True


async def setup() -> None:
    await open_app()
    await app.schema_manager.apply_schema_async()


async def enqueue(number: int) -> None:
    await open_app()
    await nothing.defer_async(number=number)


async def enqueue_many(count: int, at: float | None) -> None:
    await open_app()
    later = nothing.configure(schedule_at=datetime.fromtimestamp(at, UTC) if at else None)
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        await later.batch_defer_async(*({"number": number} for number in numbers))


async def work() -> None:
    await open_app()
    await app.run_worker_async(concurrency=CONCURRENCY, queues=["bench"], fetch_job_polling_interval=1.0)


if __name__ == "__main__":
    serve(
        Queue(
            setup=lambda: loop.run(setup()),
            enqueue=lambda number: loop.run(enqueue(number)),
            enqueue_many=lambda count, at: loop.run(enqueue_many(count, at)),
            work=lambda: loop.run(work()),
        )
    )
