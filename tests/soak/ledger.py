"""The ledger: what handlers and producers did, in append-only files, told by nobody but themselves.

Each process has a file of its own and writes each line by one system call, so what was written
before a kill is there. Times are of the machine's monotonic clock, which no faked clock touches.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "SOAK_LEDGER"

_files: dict[tuple[int, str], int] = {}


def write(name: str, **entry: object) -> None:
    """Append an entry to this process's file of that name."""
    key = os.getpid(), name
    descriptor = _files.get(key)
    if descriptor is None:
        path = Path(os.environ[VARIABLE], f"{name}-{os.getpid()}.jsonl")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        descriptor = _files.setdefault(key, descriptor)
    entry["t"] = time.monotonic()
    os.write(descriptor, (json.dumps(entry) + "\n").encode())


def read(directory: Path, name: str) -> Iterator[dict[str, Any]]:
    """All entries of the files of that name; a line that a kill cut short is left out."""
    for path in sorted(directory.glob(f"{name}-*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


@dataclass(slots=True)
class Run:
    """What handlers said of one lease."""

    starts: list[float] = field(default_factory=list)
    returned_at: float | None = None
    raised_at: float | None = None
    pids: set[int] = field(default_factory=set)

    @property
    def ended_at(self) -> float | None:
        """When its handler was through; None: its process died before."""
        return self.raised_at if self.returned_at is None else self.returned_at


def runs(directory: Path) -> dict[tuple[int, int], Run]:
    """(job id, lease) -> its run."""
    found: dict[tuple[int, int], Run] = defaultdict(Run)
    for entry in read(directory, "handler"):
        run = found[entry["id"], entry["lease"]]
        run.pids.add(entry["pid"])
        match entry["phase"]:
            case "start":
                run.starts.append(entry["t"])
            case "returned":
                run.returned_at = entry["t"]
            case "raised":
                run.raised_at = entry["t"]
    return dict(found)


@dataclass(slots=True)
class Enqueues:
    """What producers know of the jobs they wanted. A token names one wish, and stands in its job."""

    kinds: dict[str, str] = field(default_factory=dict)
    """Token -> kind, of every wish."""
    later: set[str] = field(default_factory=set)
    """Tokens of jobs for tomorrow."""
    committed: dict[str, int] = field(default_factory=dict)
    """Token -> job id, acknowledged."""
    refused: set[str] = field(default_factory=set)
    """Rolled back, duplicate, invalid: no job may have such a token."""
    duplicates: dict[str, int] = field(default_factory=dict)
    """Token -> the job that was said to hold the key."""
    cancelled: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    unanswered: Counter[int] = field(default_factory=Counter)
    """Job id -> cancels and deletes that got no answer."""

    @property
    def lost(self) -> set[str]:
        """Wishes without an answer: the job may be there or not."""
        return self.kinds.keys() - self.committed.keys() - self.refused


def enqueues(directory: Path) -> Enqueues:
    found = Enqueues()
    for entry in read(directory, "producer"):
        match entry["do"]:
            case "wish":
                found.kinds |= entry["kinds"]
                found.later |= set(entry["later"])
            case "committed":
                found.committed |= entry["ids"]
            case "refused":
                found.refused |= set(entry["tokens"])
            case "duplicate":
                found.refused.add(entry["token"])
                found.duplicates[entry["token"]] = entry["holder"]
            case "change":
                found.unanswered[entry["id"]] += 1
            case "changed":
                found.unanswered[entry["id"]] -= 1
                if entry["count"] and entry["to"] == "cancelled":
                    found.cancelled.add(entry["id"])
                elif entry["count"]:
                    found.deleted.add(entry["id"])
            case other:
                raise ValueError(f"the ledger has an entry {other!r}")
    return found
