"""Celery with Redis: results ignored, a large prefetch, no pool between."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from celery import Celery

from benchmarks.marks import mark
from benchmarks.peers.protocol import Queue, serve

# For jobs that do nothing: solo 1,060, threads 820 jobs/s.
POOL = ["--pool=solo"]
app = Celery("bench", broker=os.environ["REDIS_URL"])
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


@app.task(name="nothing")
def nothing(number: int) -> None:
    mark(number)


def enqueue_many(count: int, at: float | None) -> None:
    """One by one over one connection: there is no other way."""
    eta = datetime.fromtimestamp(at, UTC) if at else None
    with app.producer_or_acquire() as producer:
        for number in range(count):
            nothing.apply_async((number,), eta=eta, producer=producer)


def work() -> None:
    quiet = ["--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["worker", *quiet, *POOL, f"--hostname=bench-{os.getpid()}"])


if __name__ == "__main__":
    serve(Queue(setup=lambda: None, enqueue=nothing.delay, enqueue_many=enqueue_many, work=work))
