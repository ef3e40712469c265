"""Put known defects into a copy of the code, one at a time, and see the suite fail.

    python scripts/mutants.py [--markdown] [NAME ...]
    python scripts/mutants.py --soak [--seconds 75] [--seed 7] [--markdown] [NAME ...]

A test suite proves something only if it fails on wrong code. For each mutant one of the files named with
it must fail; the first test that does is printed. With ``--soak`` a short soak must fail, which knows
nothing of the mutant; what its account complained of is printed. Exit code 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parent.parent
COPIED = (
    "awa_django",
    "example_project",
    "tests",
    "scripts",
    "docs",
    "manage.py",
    "pyproject.toml",
    "README.md",
)
FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect: ``old`` stands exactly once in the file, and becomes ``new``."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    in_soak: bool = True
    """Whether it breaks a promise that the soak's account looks at, with what the soak does."""


MUTANTS = (
    Mutant(
        "completion without the lease guard",
        "awa_django/storage/sql/complete.sql",
        "job.run_lease = entry.run_lease  -- a rescued attempt matches nothing",
        "true",
        (
            "tests/storage/test_finalize.py",
            "tests/faults/test_process_death.py",
            "tests/property/test_model.py",
        ),
    ),
    Mutant(
        "failure and rescue without the attempt check",
        "awa_django/worker/verdict.py",
        "if not terminal and run.attempt < run.max_attempts:",
        "if not terminal:",
        ("tests/worker", "tests/faults/test_process_death.py", "tests/property/test_model.py"),
    ),
    Mutant(
        "the view writes the row that it saw, whatever has become of it",
        "awa_django/migrations/sql/0004_view.sql",
        "*<> OLD THEN\n        RETURN NULL;\n    END IF;\n\n    IF NEW.state = 'available'",
        "IS NULL THEN\n        RETURN NULL;\n    END IF;\n\n    IF NEW.state = 'available'",
        ("tests/concurrency/test_view_races.py", "tests/property/test_interleavings.py"),
    ),
    Mutant(
        "release without giving the attempt back",
        "awa_django/storage/sql/release.sql",
        "greatest(job.attempt - 1, 0)",
        "job.attempt",
        ("tests/storage/test_finalize.py", "tests/faults/test_drain.py", "tests/property/test_model.py"),
    ),
    Mutant(
        "a batch without fallback",
        "awa_django/worker/settle.py",
        "        elif len(group) > 1:\n",
        "        elif len(group) > 1:\n            raise\n        elif len(group) > 1:\n",
        ("tests/worker", "tests/property/test_model.py"),
    ),
    Mutant(
        "promotion that waits for locked rows",
        "awa_django/storage/sql/promote.sql",
        "    FOR UPDATE SKIP LOCKED\n",
        "    FOR UPDATE\n",
        ("tests/storage/test_promote.py", "tests/property/test_interleavings.py"),
        in_soak=False,  # it is late, not wrong
    ),
    Mutant(
        "a move between the tables that forgets a column",
        "awa_django/storage/sql/promote.sql",
        "gone.progress, gone.result, gone.worker",
        "NULL, gone.result, gone.worker",
        ("tests/storage/test_promote.py", "tests/property/test_model.py"),
    ),
    Mutant(
        "a claim that does not pass over what another one holds",
        "awa_django/storage/sql/claim.sql",
        "LIMIT least(wanted.capacity, %(share)s::integer)\n        FOR UPDATE SKIP LOCKED\n",
        "LIMIT least(wanted.capacity, %(share)s::integer)\n",
        ("tests/storage/test_claim.py", "tests/concurrency/test_storage.py"),
    ),
    Mutant(
        "the same, of a claim from a single queue",
        "awa_django/storage/sql/claim_queue.sql",
        "LIMIT before.capacity\n        FOR UPDATE SKIP LOCKED\n",
        "LIMIT before.capacity\n",
        ("tests/storage/test_claim.py", "tests/concurrency/test_storage.py"),
    ),
    Mutant(
        "a completion whose batches lock as they find",
        "awa_django/storage/sql/plan_by_index.sql",
        "set_config('enable_seqscan', 'off'",
        "set_config('enable_seqscan', 'on'",
        ("tests/storage/test_lock_order.py",),
        in_soak=False,  # a deadlock is tried again
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of the mutants to try (default: all)")
    parser.add_argument("--markdown", action="store_true", help="print a table for the documentation")
    parser.add_argument("--soak", action="store_true", help="let a soak find them, not the tests")
    parser.add_argument("--seconds", type=float, default=75.0, help="how long the soak goes on")
    parser.add_argument("--seed", type=int, default=7, help="of the soak")
    given = parser.parse_args()
    survivors = 0
    for mutant in MUTANTS:
        if given.names and not any(name in mutant.name for name in given.names):
            continue
        if given.soak and not mutant.in_soak:
            continue
        caught = try_mutant(mutant, given)
        survivors += caught is None
        told = "SURVIVED" if caught is None else caught
        print(f"| {mutant.name} | {told} |" if given.markdown else f"{mutant.name}: {told}", flush=True)
    return 1 if survivors else 0


def try_mutant(mutant: Mutant, given: argparse.Namespace) -> str | None:
    """What caught it, as the documentation names it: the first test that failed, or the soak's complaints."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        for name in COPIED:
            source, target = PROJECT_DIR / name, Path(directory) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        mutate(Path(directory) / mutant.file, mutant)
        if given.soak:
            return soak_violations(directory, seconds=given.seconds, seed=given.seed)
        failed = next(filter(None, (first_failure(directory, tests) for tests in mutant.tests)), None)
        return failed and f"`{failed}`"


def mutate(file: Path, mutant: Mutant) -> None:
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}")
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def first_failure(directory: str, tests: str) -> str | None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:randomly",
        "-m",
        "not slow and not system",
        tests,
    ]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": directory},
        capture_output=True,
        text=True,
        check=False,
    )
    found = FAILED.search(done.stdout)
    if found is None and done.returncode != 0:  # an error before any test says nothing of the mutant
        raise SystemExit(f"{' '.join(command)} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return None if found is None else found[1].partition("[")[0]


def soak_violations(directory: str, *, seconds: float, seed: int) -> str | None:
    """What the account of a soak complained of, and how often."""
    report = Path(directory) / "report.json"
    command = [sys.executable, "-m", "tests.soak", f"--minutes={seconds / 60}", f"--seed={seed}"]
    done = subprocess.run(
        [*command, f"--json={report}", f"--directory={directory}/soak"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": directory},
        capture_output=True,
        text=True,
        check=False,
    )
    if not report.exists():
        raise SystemExit(f"{' '.join(command)} did not end:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = json.loads(report.read_text(encoding="utf-8"))
    kinds = Counter(violation.partition(":")[0] for violation in found["violations"])
    counts = {kind: found["figures"].get(kind, count) for kind, count in kinds.items()}
    return "; ".join(f"{kind}: {count:g}" for kind, count in counts.items()) or None


if __name__ == "__main__":
    sys.exit(main())
