"""Releases to upgrade from, as the history of this repository has them: one for each version of the schema.

The release of a version is the last commit whose code works on it: the one before the commit that raised
``SCHEMA_VERSION``, or, where that is in the middle of a change, the newest before it that runs.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from awa_django.storage.inspect import SCHEMA_VERSION
from tests.conftest import PROJECT_DIR
from tests.producer_process import Producer
from tests.worker_process import WorkerProcess

NAMED_IN = "awa_django/storage/inspect.py"
WHAT_RUNS = ("awa_django", "example_project", "tests", "manage.py", "pytest_awa.py", "pyproject.toml")

# Commits that are tried; each is a small step.
TRIED = 20
NOWHERE = "postgres://nobody@127.0.0.1:1/nowhere"


@dataclass(frozen=True, slots=True)
class Release:
    """The code of one release in a directory, to be run as its users run it."""

    schema: int
    directory: Path
    commit: str = "this tree"

    def __str__(self) -> str:
        return f"schema {self.schema} ({self.commit[:9]})"

    @property
    def newest_migration(self) -> str:
        """Its number, as ``migrate awa NUMBER`` takes it."""
        return max(path.name[:4] for path in self.directory.glob("awa_django/migrations/[0-9]*.py"))

    def environment(self, url: str) -> dict[str, str]:
        """This code goes before that which is installed."""
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "PYTHONPATH": str(self.directory),
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, url: str, *arguments: str, **others: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments to its end."""
        return subprocess.run(
            [sys.executable, *arguments],
            env={**self.environment(url), **others},
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def manage(self, url: str, *arguments: str, code: int = 0) -> str:
        """Run a command that ends with this exit code; what it says."""
        done = self.run(url, "manage.py", *arguments)
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{self}: {arguments}: {said}"
        assert "Traceback" not in said, said
        return said

    def python(self, url: str, text: str) -> str:
        """Run these lines in a process of the project, with ``handlers`` and ``operations`` at hand."""
        head = (
            "import django; django.setup()\n"
            "from awa_django import Unique, enqueue_many, operations\n"
            "from tests import handlers\n"
        )
        done = self.run(url, "-c", head + text)
        assert done.returncode == 0, f"{self}: {done.stdout}{done.stderr}"
        return done.stdout

    def worker(self, url: str, log: Path, *arguments: str, **awa: Any) -> WorkerProcess:
        return WorkerProcess(self.environment(url), log, *arguments, awa=awa, project=self.directory)

    def producer(self, url: str, log: Path) -> Producer:
        return Producer(self.environment(url), log, project=self.directory)


THIS = Release(SCHEMA_VERSION, PROJECT_DIR)


@cache
def history() -> dict[int, str]:
    """Each earlier version of the schema -> the commit of its release; the newest version first."""
    if _git("rev-parse", "--is-inside-work-tree", check=False).strip() != b"true":
        pytest.skip("no git history to take earlier releases from")
    if _git("rev-parse", "--is-shallow-repository").strip() == b"true":
        pytest.fail("the history is cut off here, and earlier releases with it: run `git fetch --unshallow`")
    found: dict[int, str] = {}
    for commit in _candidates():
        text = _git("show", f"{commit}:{NAMED_IN}", check=False).decode()
        named = re.search(r"^SCHEMA_VERSION = (\d+)$", text, re.MULTILINE)
        if named and int(named[1]) < SCHEMA_VERSION:
            found.setdefault(int(named[1]), commit)
    return dict(sorted(found.items(), reverse=True))


def _candidates() -> Iterator[str]:
    # HEAD itself, where the next version is not committed yet.
    yield _git("rev-parse", "HEAD").decode().strip()
    changed = _git("log", "--format=%H", "-G^SCHEMA_VERSION = ", "--", NAMED_IN).decode().split()
    for commit in changed:
        yield f"{commit}^"


def release(schema: int, directory: Path) -> Release:
    """The release of that version, its files in a new directory in ``directory``."""
    for commit in _git("rev-list", f"--max-count={TRIED}", history()[schema]).decode().split():
        found = Release(schema, directory / commit[:9], commit)
        there = set(_git("ls-tree", "--name-only", commit).decode().split()) & set(WHAT_RUNS)
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, *there))) as archive:
            archive.extractall(found.directory, filter="data")
        if not found.run(NOWHERE, "manage.py", "awa_worker", "--help").returncode:
            return found
    pytest.fail(f"none of the last {TRIED} commits on schema {schema} has a worker that can be run")


def _git(*arguments: str, check: bool = True) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=PROJECT_DIR, capture_output=True, check=check).stdout
    except FileNotFoundError:
        return b""
