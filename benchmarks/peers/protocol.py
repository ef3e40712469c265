"""What a peer's script answers to. Only the standard library: the script runs in the peer's environment.

``setup`` makes the schema. ``many COUNT [AT]`` puts jobs in at once, due now or at AT (seconds since 1970);
``one COUNT`` one by one; ``paced COUNT`` one by one to an idle worker. ``work`` runs a worker until SIGTERM.
All but ``setup`` say "ready" and, but for ``work``, wait for a line, as the benchmark's own producers do.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from benchmarks.pacing import paced


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How a peer does it. A job's handler calls ``benchmarks.marks.mark(number)``."""

    setup: Callable[[], object]
    enqueue: Callable[[int], object]
    enqueue_many: Callable[[int, float | None], object]
    work: Callable[[], object]


def serve_async(
    *,
    connect: Callable[[], Coroutine[Any, Any, object]],
    setup: Callable[[], Coroutine[Any, Any, object]],
    enqueue: Callable[[int], Coroutine[Any, Any, object]],
    enqueue_many: Callable[[int, float | None], Coroutine[Any, Any, object]],
    work: Callable[[], Coroutine[Any, Any, object]],
    close: Callable[[], Coroutine[Any, Any, object]],
) -> None:
    """The same for a peer whose functions are coroutines, on one event loop."""
    with asyncio.Runner() as loop:
        loop.run(connect())
        serve(
            Queue(
                setup=lambda: loop.run(setup()),
                enqueue=lambda number: loop.run(enqueue(number)),
                enqueue_many=lambda count, at: loop.run(enqueue_many(count, at)),
                work=lambda: loop.run(work()),
            )
        )
        loop.run(close())


def serve(queue: Queue) -> None:
    """Do what the command line asks for."""
    verb, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    if verb == "setup":
        queue.setup()
        return
    if verb == "work":
        print("ready", flush=True)
        queue.work()
        return
    print("ready", flush=True)
    sys.stdin.readline()
    told: dict[str, object] = {"began": time.time()}
    match verb:
        case "one":
            for number in range(count):
                queue.enqueue(number)
        case "many":
            queue.enqueue_many(count, float(sys.argv[3]) if len(sys.argv) > 3 else None)
        case "paced":
            told["jobs"] = paced(queue.enqueue, count)
    print(json.dumps({**told, "ended": time.time()}), flush=True)
