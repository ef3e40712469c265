"""Other queues as contenders: each in a virtual environment and, for each turn, a database of its own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.database import PROJECT_DIR, Database
from benchmarks.harness import Bench, Contender
from benchmarks.marks import Marks
from benchmarks.pacing import latencies

CACHE = PROJECT_DIR / ".bench" / "peers"
PATIENCE = 120.0
SETTLE = 3.0  # seconds that a worker has to become ready
TOMORROW = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Peer:
    """``share`` of the jobs that others get, for one that would need hours for all of them."""

    name: str
    requirements: tuple[str, ...]
    share: float = 1.0
    needs_redis: bool = False

    def python(self) -> Path:
        """The interpreter of its environment, which is made when it is first asked for."""
        digest = sha256("\n".join([sys.version, *self.requirements]).encode()).hexdigest()[:8]
        home = CACHE / f"{self.name}-{digest}"
        python = home / "bin" / "python"
        stamp = home / "installed"
        if not stamp.exists():
            venv.create(home, clear=True, with_pip=True)
            install = [str(python), "-m", "pip", "install", "--quiet", *self.requirements]
            done = subprocess.run(install, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
            stamp.touch()
        return python

    def jobs(self, count: int) -> int:
        return max(int(count * self.share), 100)

    def command(self, *arguments: object) -> list[str]:
        module = f"benchmarks.peers.run_{self.name.replace('-', '_')}"
        return [str(self.python()), "-m", module, *map(str, arguments)]

    @contextlib.contextmanager
    def store(self, bench: Bench) -> Iterator[Store]:
        """An empty database, or broker, with its schema."""
        with contextlib.ExitStack() as stack:
            database = bench.server.create("peer", with_schema=False)
            stack.callback(database.connection.close)
            extra = {"REDIS_URL": stack.enter_context(redis())} if self.needs_redis else {}
            store = Store(self, database, extra)
            store.run("setup")
            yield store


@dataclass(frozen=True, slots=True)
class Store:
    """Where a peer keeps its jobs."""

    peer: Peer
    database: Database
    extra: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """No settings of Django's: those are ours."""
        own = {"DATABASE_URL": self.database.socket_url, "PYTHONWARNINGS": "ignore", **self.extra}
        environment = {**self.database.environment, **own}
        del environment["DJANGO_SETTINGS_MODULE"]
        return environment

    def run(self, *arguments: object) -> None:
        """Raises: RuntimeError with the last line that it said."""
        command = self.peer.command(*arguments)
        done = subprocess.run(
            command, env=self.environment, cwd=PROJECT_DIR, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-200:]}")

    def produce(self, *arguments: object) -> dict[str, Any]:
        (told,) = processes.ask([self.peer.command(*arguments)], self.environment)
        return told

    @contextlib.contextmanager
    def workers(self, marks: Marks, count: int = 1) -> Iterator[Callable[[], bool]]:
        """So many workers; tells whether one of them has ended."""
        environment = {**self.environment, **marks.environment}
        with contextlib.ExitStack() as stack:
            started = [
                stack.enter_context(processes.running(self.peer.command("work"), environment))
                for _ in range(count)
            ]
            yield lambda: any(process.poll() is not None for process in started)


def enqueue(bench: Bench, peer: Peer, jobs: int, verb: str = "one") -> Contender:
    count = peer.jobs(jobs)

    def measure() -> dict[str, float]:
        with peer.store(bench) as store:
            told = store.produce(verb, count)
        return {"jobs/s": count / (told["ended"] - told["began"])}

    return measure


def drain(bench: Bench, peer: Peer, jobs: int, *, workers: int = 1, deferred: int = 0) -> Contender:
    """From the first handler to the last, the end of the last is not waited for."""
    count = peer.jobs(jobs)

    def measure() -> dict[str, float]:
        with peer.store(bench) as store, Marks() as marks:
            if deferred:
                store.produce("many", deferred, time.time() + TOMORROW)
            store.produce("many", count)
            store.database.connection.execute("VACUUM ANALYZE")
            store.database.checkpoint()
            with store.workers(marks, workers) as is_over:
                marks.wait_for(count, timeout=PATIENCE, is_over=is_over)
            return {"jobs/s": marks.rate()}

    return measure


def burst(bench: Bench, peer: Peer, jobs: int, ahead: float) -> Contender:
    """``ahead`` seconds must be enough to put the jobs in."""
    count = peer.jobs(jobs)

    def measure() -> dict[str, float]:
        with peer.store(bench) as store, Marks() as marks, store.workers(marks) as is_over:
            instant = time.time() + ahead
            store.produce("many", count, instant)
            if time.time() > instant:
                raise TimeoutError(f"{count} jobs could not be put in within {ahead:.0f} s")
            marks.wait_for(count, timeout=PATIENCE, is_over=is_over)
            last = max(at for _, at in marks.since(0)) / 1e9
        return {"jobs/s": count / (last - instant)}

    return measure


def pickup(bench: Bench, peer: Peer, jobs: int) -> Contender:
    def measure() -> dict[str, float]:
        with peer.store(bench) as store, Marks() as marks, store.workers(marks) as is_over:
            time.sleep(SETTLE)
            told = store.produce("paced", jobs)
            marks.wait_for(jobs, timeout=PATIENCE, is_over=is_over)
            return latencies(told["jobs"], dict(marks.since(0)))

    return measure


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """A Redis of the benchmark's own on a socket. Raises: RuntimeError when there is none to start."""
    if (program := shutil.which("redis-server")) is None:
        raise RuntimeError("there is no redis-server on this machine")
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        socket = Path(directory, "redis")
        command = [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", directory]
        with processes.running([*command, "--loglevel", "warning"], {}):
            give_up_at = time.monotonic() + 10
            while not socket.exists():
                if time.monotonic() > give_up_at:
                    raise RuntimeError("redis-server did not start")
                time.sleep(0.02)
            yield f"redis+socket://{socket}"


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("pgqueuer", ("pgqueuer[asyncpg]>=1.6,<2",)),
        Peer("awa-pg", ("awa-pg==0.5.7",)),
        Peer("celery", ("celery[redis]>=5.5",), share=0.2, needs_redis=True),
        Peer("procrastinate", ("procrastinate>=3.5,<4", "psycopg[binary]>=3.2,<4"), share=0.1),
        Peer("django-tasks-db", ("django-tasks-db>=0.12", "psycopg[binary]>=3.2,<4"), share=0.05),
    )
}
