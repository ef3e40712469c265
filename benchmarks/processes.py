"""The processes that take part: the product's worker and the floor's loops."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import psutil

from benchmarks.database import PROJECT_DIR, Database

START_TIMEOUT = 60.0
END_TIMEOUT = 30.0
DRAIN_TIMEOUT = 300.0
# Seconds that any process may take: the benchmark ends though a peer hangs.
LIMIT = 900.0
WORKER = (sys.executable, str(PROJECT_DIR / "manage.py"), "awa_worker")


def drain(database: Database, *arguments: str) -> None:
    """Run a worker until nothing is due. Raises: CalledProcessError, TimeoutExpired."""
    with running([*WORKER, "--drain", *arguments], database.environment) as process:
        if code := process.wait(DRAIN_TIMEOUT):
            raise subprocess.CalledProcessError(code, process.args)


@contextlib.contextmanager
def worker(
    database: Database, *arguments: str, children: int = 1, environment: Mapping[str, str] | None = None
) -> Iterator[psutil.Process]:
    """A worker whose children are ready to claim; it is stopped at the end of the block."""
    command = [*WORKER, "--processes", str(children), *arguments]
    with running(command, {**database.environment, **(environment or {})}) as process:
        give_up_at = time.monotonic() + START_TIMEOUT
        while True:
            (ready,) = database.one(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE application_name LIKE 'awa-%%-claim' AND datname = current_database()"
            )
            if ready >= children:
                break
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"the worker did not start: {' '.join(command)}")
            time.sleep(0.05)
        yield psutil.Process(process.pid)


def produce(database: Database, mode: str, count: int, *, producers: int = 1) -> list[dict[str, Any]]:
    """Let so many producers enqueue ``count`` jobs each, all at once; what each of them told."""
    command = [sys.executable, "-m", "benchmarks.producer", mode, str(count)]
    return ask([command] * producers, database.environment)


def ask(commands: Sequence[list[str]], environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Start processes, let them begin at once, and read the one line of JSON that each prints."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(running(command, environment)) for command in commands]
        release(started)
        return [json.loads(_answer(process)) for process in started]


@contextlib.contextmanager
def floors(
    database: Database,
    mode: str,
    handler: str = "nothing",
    *,
    processes: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Iterator[list[subprocess.Popen[str]]]:
    """So many of the floor's processes, which begin all at once when each is ready."""
    command = [sys.executable, "-m", "benchmarks.floor", mode, handler]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(running(command, {**database.environment, **(environment or {})}))
            for _ in range(processes)
        ]
        release(started)
        yield started


def release(started: Sequence[subprocess.Popen[str]]) -> None:
    """Let processes begin at once when each of them has said that it is ready."""
    for process in started:
        if (line := _answer(process)) != "ready\n":
            raise RuntimeError(f"{process.args!r} did not start: {line!r}")
    for process in started:
        _stream(process.stdin).write("go\n")
        _stream(process.stdin).flush()


@contextlib.contextmanager
def running(command: list[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is asked to end at the end of the block, and killed when it does not, or hangs."""
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=PROJECT_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    limit = threading.Timer(LIMIT, process.kill)
    limit.start()
    try:
        yield process
    finally:
        limit.cancel()
        process.terminate()
        try:
            process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            _stream(stream).close()


def _answer(process: subprocess.Popen[str]) -> str:
    """The next line that it prints. Raises: RuntimeError when it has ended."""
    line = _stream(process.stdout).readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait()}")
    return line


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
