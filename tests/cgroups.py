"""A memory cgroup of a test's own, in which the kernel kills what takes too much (version 1 or 2)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

ROOT = Path("/sys/fs/cgroup")


class MemoryGroup:
    """Processes that together may take so much, with no swap."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._is_second = (ROOT / "cgroup.controllers").exists()

    def limit(self, size: int) -> None:
        names = ("memory.max", "memory.swap.max") if self._is_second else ("memory.limit_in_bytes",)
        for name, value in zip(names, (size, 0), strict=False):
            path = self.directory / name
            if path.exists() or name == names[0]:
                path.write_text(str(value))

    def add(self, pid: int) -> None:
        """It, and what it starts from now on; what it has already is not counted."""
        (self.directory / "cgroup.procs").write_text(str(pid))

    def kills(self) -> int:
        """How many processes the kernel killed for their memory."""
        name = "memory.events" if self._is_second else "memory.oom_control"
        told = dict(line.split() for line in (self.directory / name).read_text().splitlines())
        return int(told["oom_kill"])


@contextlib.contextmanager
def memory_group(size: int) -> Iterator[MemoryGroup]:
    """A group of that many bytes; skips the test where none may be made."""
    parent = ROOT if (ROOT / "cgroup.controllers").exists() else ROOT / "memory"
    group = MemoryGroup(parent / f"awa-tests-{os.getpid()}")
    try:
        group.directory.mkdir()
    except OSError as exc:
        pytest.skip(f"no memory cgroup can be made here: {exc}")
    try:
        try:
            group.limit(size)
        except OSError as exc:
            pytest.skip(f"memory cannot be limited by a cgroup here: {exc}")
        yield group
    finally:
        wait_until(lambda: not (group.directory / "cgroup.procs").read_text())
        group.directory.rmdir()
