"""Arguments of many megabytes: refused where they are enqueued; raw rows of that size run one by one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from awa_django import InvalidJob
from tests import handlers, value_jobs
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker
from tests.worker_process import WorkerProcess

IMPORTS = ["tests.handlers", "tests.value_jobs"]


@pytest.mark.fault("F52", injected="arguments of 1, 16, 64, 255 and 300 MB")
@pytest.mark.parametrize(
    "megabytes",
    [1, 16, 64, pytest.param(255, marks=pytest.mark.slow), pytest.param(300, marks=pytest.mark.slow)],
)
def test_huge_arguments_are_refused_before_they_travel(
    megabytes: int, database: Database, observe: Observe
) -> None:
    text = "x" * (megabytes * 2**20)
    started = time.monotonic()
    for enqueue in (
        lambda: value_jobs.measure.enqueue(number=1, text=text),
        lambda: value_jobs.measure.enqueue_many([{"number": 1, "text": text}]),
    ):
        with pytest.raises(InvalidJob, match=r"MAX_ARGS_BYTES.*largest is 'text'"):
            enqueue()
    took = time.monotonic() - started
    assert database.states() == {}
    observe(f"{megabytes} MB: refused in {took:.2f} s, nothing was sent")


def peak_megabytes(worker: WorkerProcess) -> float:
    """The most memory that the worker's child ever had resident."""
    (child,) = worker.child_pids()
    status = Path(f"/proc/{child}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


@pytest.mark.acceptance
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
@pytest.mark.parametrize(
    ("count", "megabytes", "text"),
    [
        # Stored as 12 kB each, so that one claim takes them all.
        pytest.param(150, 1, "repeat('x', %s * 1048576)", id="compressed"),
        # No compression makes these smaller.
        pytest.param(
            100,
            5,
            "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, %s::int * 32768) AS n)",
            marks=[pytest.mark.slow, pytest.mark.timeout(600)],
            id="plain",
        ),
    ],
)
@pytest.mark.fault("F52", injected="rows by SQL, of which a child may hold all: 150 of 1 MB, 100 of 5 MB")
def test_many_large_rows_take_little_memory(
    count: int,
    megabytes: int,
    text: str,
    database: Database,
    start_worker: StartWorker,
    observe: Observe,
) -> None:
    text %= megabytes
    worker = start_worker("--concurrency", "500", "--threads", "4", awa={"IMPORTS": IMPORTS})
    handlers.record.enqueue(number=0)
    wait_until(lambda: database.effects("record") == [0], message=worker.text)
    before = peak_megabytes(worker)
    insert(database, value_jobs.measure.handler.kind, range(count), text)
    wait_until(lambda: database.states() == {"completed": count + 1}, timeout=500, message=worker.text)
    grew = peak_megabytes(worker) - before
    insert(database, value_jobs.measure_async.handler.kind, range(count, count + 8), text)
    wait_until(lambda: database.states() == {"completed": count + 9}, message=worker.text)
    assert worker.stop() == 0
    assert database.effects("measure") == list(range(count + 8))
    assert database.value("SELECT max(attempt) FROM awa.jobs_hot") == 1
    # The four that run have theirs in a few copies.
    assert grew < min(4 * 5 * megabytes + 30, count * megabytes / 3)
    observe(f"{count} of {megabytes} MB: all run at their first attempt, at most {grew:.0f} MB more resident")


def insert(database: Database, kind: str, numbers: range, text: str) -> None:
    """Rows with this text become visible at once."""
    database.connection.execute(
        "INSERT INTO awa.jobs_hot (kind, args) "
        "SELECT %s, jsonb_build_object('number', number, 'text', value.text) "
        f"FROM (SELECT {text} AS text) AS value, generate_series(%s::int, %s::int) AS number",
        [kind, numbers.start, numbers.stop - 1],
    )
