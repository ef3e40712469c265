"""WorkerOptions: everything the command line says about a worker."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from awa_django.codec import clean_text
from awa_django.errors import ConfigurationError

DEFAULT_CONCURRENCY = 8
# More threads than this only wait for the GIL; more jobs at once is what async handlers are for.
MAX_THREADS = 256
MAX_CONCURRENCY = 10_000
# Where a process reads how much memory it has.
STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker runs. Picklable: the children get it as it is.

    ``queues`` is queue -> how many of its jobs may run at once in each child; ``concurrency`` bounds
    their sum, ``threads`` how many ``def`` handlers run at once.
    """

    queues: Mapping[str, int]
    concurrency: int = DEFAULT_CONCURRENCY
    threads: int = DEFAULT_CONCURRENCY
    processes: int = 1
    drain: bool = False
    max_jobs: int | None = None
    max_time: timedelta | None = None
    max_jobs_per_child: int | None = None
    max_memory_per_child: int | None = None
    """Megabytes."""
    shutdown_timeout: timedelta = field(default=timedelta(seconds=30))

    def __post_init__(self) -> None:
        if not self.queues:
            raise ConfigurationError("a worker needs at least one queue: see --queues")
        for name, value, most in (
            ("--concurrency", self.concurrency, MAX_CONCURRENCY),
            ("--threads", self.threads, MAX_THREADS),
            ("--processes", self.processes, 1000),
            *((f"--queues {queue}", limit, MAX_CONCURRENCY) for queue, limit in self.queues.items()),
        ):
            if not 1 <= value <= most:
                raise ConfigurationError(f"{name} must be between 1 and {most}, not {value}")
        for name, bound in (
            ("--max-jobs", self.max_jobs),
            ("--max-jobs-per-child", self.max_jobs_per_child),
            ("--max-memory-per-child", self.max_memory_per_child),
        ):
            if bound is not None and bound < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {bound}")


def make_options(
    *,
    queues: str | None,
    known_queues: Sequence[str],
    concurrency: int | None = None,
    threads: int | None = None,
    processes: int = 1,
    drain: bool = False,
    max_jobs: int | None = None,
    max_time: timedelta | None = None,
    max_jobs_per_child: int | None = None,
    max_memory_per_child: int | None = None,
    shutdown_timeout: timedelta = timedelta(seconds=30),
) -> WorkerOptions:
    """Options from the command line's words.

    ``queues`` is ``name:concurrency,name,...``; None serves ``known_queues``. Without ``concurrency``
    the limits named for queues add up to it; without ``threads`` there are as many as that.

    Raises: ConfigurationError naming the option that is wrong.
    """
    if max_memory_per_child is not None and not STATM.exists():
        raise ConfigurationError(f"--max-memory-per-child needs {STATM}, which Linux has")
    named = parse_queues(queues, known_queues) if queues is not None else dict.fromkeys(known_queues)
    if concurrency is None:
        concurrency = sum(limit for limit in named.values() if limit is not None)
        if not concurrency or None in named.values():
            concurrency += DEFAULT_CONCURRENCY
    return WorkerOptions(
        queues={queue: concurrency if limit is None else limit for queue, limit in named.items()},
        concurrency=concurrency,
        threads=min(concurrency, MAX_THREADS) if threads is None else threads,
        processes=processes,
        drain=drain,
        max_jobs=max_jobs,
        max_time=max_time,
        max_jobs_per_child=max_jobs_per_child,
        max_memory_per_child=max_memory_per_child,
        shutdown_timeout=shutdown_timeout,
    )


def parse_queues(text: str, known: Sequence[str] = ()) -> dict[str, int | None]:
    """``"mail:10,default"`` -> ``{"mail": 10, "default": None}``; a limit is what follows the last colon.

    But for a known queue whose own name has a colon, and no number behind it: ``mail:high``.

    Raises: ConfigurationError when a name is empty, twice, over 200 characters, or none that PostgreSQL
    can store (NUL, lone surrogates), or a limit is no number.
    """
    named: dict[str, int | None] = {}
    for part in text.split(","):
        queue, colon, limit = part.strip().rpartition(":")
        if not colon or (not limit.isdecimal() and part.strip() in known):
            queue, colon, limit = part.strip(), "", ""
        queue = queue.strip()
        if not queue or len(queue) > 200 or clean_text(queue, 200) != queue or queue in named:
            raise ConfigurationError(
                "--queues takes name:concurrency,name,... "
                f"with each name once (1 to 200 characters that can be stored), not {text!r}"
            )
        if colon and not limit.strip().isdecimal():
            raise ConfigurationError(f"--queues {queue}: the concurrency must be a number, not {limit!r}")
        named[queue] = int(limit) if colon else None
    return named


def check_threads() -> None:
    """Raises: ConfigurationError where gevent or eventlet has put something else in the place of threads."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if (gevent and gevent.is_module_patched("threading")) or (
        eventlet and eventlet.is_monkey_patched("thread")
    ):
        raise ConfigurationError(
            "a worker needs threads as they are, and gevent or eventlet has patched them: do that in the web "
            "server's own configuration (gunicorn's --worker-class gevent does), not in manage.py or settings"
        )
