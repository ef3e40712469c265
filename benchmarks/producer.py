"""A process that enqueues: ``python -m benchmarks.producer MODE COUNT``, on the database of ``DATABASE_URL``.

It says "ready", waits for a line, enqueues, and prints as JSON when it began and ended, and for
``paced`` modes (number, when it was enqueued, when that was committed) of each job, in nanoseconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg

from benchmarks import floor
from benchmarks.pacing import paced

QUEUE = "bench-0"
Enqueue = Callable[[int], object]
EnqueueMany = Callable[[int], object]


def awa(kind: str = "nothing") -> Enqueue:
    import django  # only where it is measured

    django.setup()
    from benchmarks import jobs

    job = getattr(jobs, kind).using(queue=QUEUE)
    return lambda number: job.enqueue(number=number)


def awa_silent() -> Enqueue:
    """The same, but no worker is ever woken."""
    enqueue = awa()
    from awa_django.enqueue import single

    vars(single)["wake_workers"] = lambda *_: None
    return enqueue


def awa_many() -> EnqueueMany:
    import django

    django.setup()
    from awa_django import enqueue_many
    from benchmarks import jobs

    job = jobs.nothing.using(queue=QUEUE)
    return lambda count: enqueue_many(job.item(number=number) for number in range(count))


def bare() -> Enqueue:
    """An INSERT of the same row, prepared by psycopg."""
    from awa_django.storage._sql import statement

    connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    insert = statement("insert_job")
    row = {"kind": "benchmarks.nothing", "queue": QUEUE, "priority": 2, "max_attempts": 25}

    def enqueue(number: int) -> None:
        connection.execute(insert, {**row, "args": json.dumps({"number": number})}).fetchone()

    return enqueue


def bare_copy() -> EnqueueMany:
    """A COPY of the same rows."""
    connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)

    def enqueue_many(count: int) -> None:
        with (
            connection.cursor() as cursor,
            cursor.copy("COPY awa.jobs_hot (kind, queue, args, priority, max_attempts) FROM STDIN") as copy,
        ):
            for number in range(count):
                copy.write_row(("benchmarks.nothing", QUEUE, json.dumps({"number": number}), 2, 25))

    return enqueue_many


def floor_notify() -> Enqueue:
    """A row for the floor, which is told of it."""
    connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    insert = "WITH told AS (SELECT pg_notify(%s, '')) INSERT INTO bench_floor (args) SELECT %s FROM told"

    def enqueue(number: int) -> None:
        connection.execute(insert, [floor.CHANNEL, json.dumps({"number": number})])

    return enqueue


MODES: dict[str, Callable[[], Callable[[int], object]]] = {
    "awa": awa,
    "awa-silent": awa_silent,
    "awa-many": awa_many,
    "bare": bare,
    "bare-copy": bare_copy,
    "awa-paced": lambda: awa("mark"),
    "floor-paced": floor_notify,
}


def main(mode: str, count: int) -> None:
    enqueue = MODES[mode]()
    print("ready", flush=True)
    sys.stdin.readline()
    told: dict[str, Any] = {"began": time.time()}
    if mode.endswith(("-many", "-copy")):
        enqueue(count)
    elif mode.endswith("-paced"):
        told["jobs"] = paced(enqueue, count)
    else:
        for number in range(count):
            enqueue(number)
    print(json.dumps({**told, "ended": time.time()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
