"""What is left of a test's worker when pytest is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tests.worker_process import PROJECT_DIR

STARTS = """
import os, sys, time
from pathlib import Path
from tests.worker_process import WorkerProcess
print(WorkerProcess(os.environ, Path(sys.argv[1]), "--processes", "1").pid, flush=True)
time.sleep(600)
"""


@pytest.mark.acceptance
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the worker")
@pytest.mark.usefixtures("clean_queue")
def test_a_killed_pytest_leaves_no_worker(worker_env: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    command = [sys.executable, "-c", STARTS, str(log)]
    with subprocess.Popen(
        command, env=worker_env, cwd=PROJECT_DIR, stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            worker = psutil.Process(int(parent.stdout.readline()))
            wait_until(lambda: " serves " in log.read_text(), message=log.read_text)
        finally:
            parent.kill()

    def is_gone() -> bool:
        return not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE

    wait_until(is_gone, message=log.read_text)
