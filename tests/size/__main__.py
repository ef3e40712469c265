"""python -m tests.size: fill both tables with millions of jobs, open every page, and time it.

The server is that of DATABASE_URL; without one, that of the benchmarks is started. A database is made there
and removed in the end, unless --keep. Exit code 1 if a page takes over a second, sends over 8 statements or
scans a big table.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import psycopg
from rich.console import Console

from benchmarks.database import PROJECT_DIR, Server, start_server

DOCS = PROJECT_DIR / "docs" / "performance.md"


def main() -> int:
    given = arguments().parse_args()
    console = Console(highlight=False)
    if given.reuse:
        server = Server(os.environ["DATABASE_URL"])
        return run(server, given, console)
    made = start_server()
    database = made.create("size")
    os.environ["DATABASE_URL"] = database.url
    try:
        with psycopg.connect(database.url, autocommit=True) as connection:
            from tests.size.fill import fill

            fill(connection, hot=given.hot, deferred=given.deferred, say=console.print)
        return run(Server(database.url), given, console)
    finally:
        database.connection.close()
        if given.keep:
            console.print(f"Kept: DATABASE_URL={database.url}")
        else:
            with psycopg.connect(made.url, autocommit=True) as connection:
                connection.execute("DROP DATABASE awa_bench_size WITH (FORCE)")


def run(server: Server, given: argparse.Namespace, console: Console) -> int:
    """Open the pages on a database that is filled."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"
    os.environ.setdefault("SECRET_KEY", "size")
    os.environ["DEBUG"] = "0"
    import django

    django.setup()
    from tests.size import report
    from tests.size.client import staff_client
    from tests.size.measure import measure
    from tests.size.pages import pages

    timings = []
    with staff_client() as client:
        for page in pages(client):
            if given.only in page.name:
                timings.append(measure(page, rounds=given.rounds))
                if timings[-1].complaint:
                    console.print(f"{page.name}: {timings[-1].complaint}", style="red")
    report.show(console, timings)
    wrong = report.complaints(timings)
    console.print(f"{len(timings)} pages, {len(wrong)} of them not as they should be")
    if given.docs:
        report.into_page(DOCS, timings, told(server, given.rounds))
    return int(bool(wrong))


def told(server: Server, rounds: int) -> str:
    """What the table was taken on."""
    from benchmarks import machine

    found = machine.describe(server)
    with psycopg.connect(server.url) as connection:
        [(hot, deferred)] = connection.execute(
            "SELECT (SELECT count(*) FROM awa.jobs_hot), (SELECT count(*) FROM awa.scheduled_jobs)"
        ).fetchall()
    version = found["postgresql"]["server_version"]  # type: ignore[index]
    return (
        f"Taken at {found['taken_at']} from {found['commit']}: {hot:,} hot and {deferred:,} deferred jobs, "
        f"on {found['cores']} cores ({found['processor']}), {found['memory_gib']} GiB, PostgreSQL {version}, "
        f"Python {found['python']}, Django {found['django']}; medians of {rounds}."
    )


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make size ARGS=...", description=__doc__)
    parser.add_argument("--hot", type=int, default=3_000_000, help="jobs in awa.jobs_hot")
    parser.add_argument("--deferred", type=int, default=10_000_000, help="jobs in awa.scheduled_jobs")
    parser.add_argument("--rounds", type=int, default=5, help="times that a page is opened for its median")
    parser.add_argument("--only", default="", metavar="PART", help="pages with this in their name")
    parser.add_argument("--keep", action="store_true", help="leave the database, and say where it is")
    parser.add_argument("--reuse", action="store_true", help="fill nothing: DATABASE_URL is filled already")
    parser.add_argument("--docs", action="store_true", help=f"put the table into {Path('docs') / DOCS.name}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
