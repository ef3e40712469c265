"""python -m benchmarks: measure the product beside the floor, print tables, and compare with the goals."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import goals, harness, machine, plots, report
from benchmarks.database import PROJECT_DIR, start_server
from benchmarks.peer import PEERS
from benchmarks.scenarios import SCENARIOS

DOCS = PROJECT_DIR / "docs" / "performance.md"
OUTPUT = PROJECT_DIR / ".bench" / "results.json"


def main() -> int:
    given = arguments().parse_args()
    if given.redraw:
        into_docs(json.loads(DOCS.with_suffix(".json").read_text()))
        return 0
    console = Console()
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    server = start_server()
    rounds = given.rounds or (1 if given.quick else 5)
    bench = harness.Bench(server, rounds, given.quick, [PEERS[name] for name in given.peers])
    began = time.monotonic()
    results = []
    with server.alone(), contextlib.suppress(KeyboardInterrupt):  # what there is by then is reported
        for name in given.only or SCENARIOS:
            plan = SCENARIOS[name](bench)
            console.rule(plan.title)
            results.append(harness.run(name, plan, bench.rounds, console.print))
    told = {
        **machine.describe(server),
        "quick": bench.is_quick,
        "rounds": bench.rounds,
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    run = report.as_json(told, results, goals.judge(results))
    report.show(console, run)
    write(given.output, run)
    console.print(f"Written to {given.output}")
    if given.docs:
        if given.only and DOCS.with_suffix(".json").exists():
            run = report.merged(json.loads(DOCS.with_suffix(".json").read_text()), run)
        write(DOCS.with_suffix(".json"), run)
        into_docs(run)
    # A peer that cannot be installed or fails is said in its table; what is ours must work.
    return int(any(result.is_broken for result in results))


def into_docs(run: dict[str, Any]) -> None:
    """The tables and plots of this run into the documentation."""
    DOCS.write_text(report.into_page(DOCS.read_text(), run))
    plots.write_all(run, DOCS.parent / "images")


def write(path: Path, run: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--only", type=names_of(SCENARIOS), metavar="NAME,...", help=", ".join(SCENARIOS))
    peers = f"queues to run beside: {', '.join(PEERS)}"
    parser.add_argument("--peers", type=names_of(PEERS), default=[], metavar="NAME,...", help=peers)
    parser.add_argument("--rounds", type=int, help="turns of each contender (default: 5, with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the JSON goes")
    parser.add_argument(
        "--docs",
        action="store_true",
        help="put the tables and plots (with --only: those) into docs/performance.md",
    )
    parser.add_argument(
        "--redraw",
        action="store_true",
        help="measure nothing; make tables and plots anew of docs/performance.json",
    )
    return parser


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
