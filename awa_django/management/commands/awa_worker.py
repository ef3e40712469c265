"""manage.py awa_worker: the command line of the worker, and nothing else."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from awa_django import registry
from awa_django.conf import get_settings
from awa_django.errors import AwaError
from awa_django.logs import get_logger, speak_on_a_terminal
from awa_django.worker.options import check_threads, make_options
from awa_django.worker.reloader import run_with_reloader
from awa_django.worker.set_up import is_being_set_up
from awa_django.worker.supervisor import Supervisor

logger = get_logger("awa_django.worker")


class Command(BaseCommand):
    help = (
        "Run background jobs until stopped. "
        "Exit codes: 0 ended as asked, 1 could not start, "
        "3 the stop ran out of time and jobs were given back."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--queues",
            metavar="NAME[:CONCURRENCY],...",
            help="queues to serve, each with how many of its jobs may run at once in a child "
            "(default: the queues of all handlers, 'default' and AWA['QUEUES'])",
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            help="jobs at once in each child (default: the sum of the queues' numbers, or 8)",
        )
        parser.add_argument(
            "--threads",
            type=int,
            help="threads for 'def' handlers in each child (default: as the concurrency)",
        )
        parser.add_argument("--processes", type=int, default=1, help="child processes (default: 1)")
        parser.add_argument(
            "--drain", action="store_true", help="end when nothing is due any more and nothing runs here"
        )
        parser.add_argument("--max-jobs", type=int, help="end after this many jobs")
        parser.add_argument("--max-time", type=float, metavar="SECONDS", help="end after this many seconds")
        parser.add_argument(
            "--max-jobs-per-child", type=int, help="replace a child after this many jobs (it ends them first)"
        )
        parser.add_argument(
            "--max-memory-per-child",
            type=int,
            metavar="MEGABYTES",
            help="replace a child that has more memory than this (it ends its jobs first)",
        )
        parser.add_argument(
            "--shutdown-timeout",
            type=float,
            metavar="SECONDS",
            help="how long a stop waits for running jobs before it gives them back "
            "(default: AWA['SHUTDOWN_TIMEOUT'], 30 s)",
        )
        parser.add_argument(
            "--reload", action="store_true", help="in development: restart when a source file changes"
        )

    def handle(self, *args: Any, **given: Any) -> None:
        if is_being_set_up():
            return  # the manage.py has no `if __name__ == "__main__"`: its child came by here, and goes on
        speak_on_a_terminal()
        settings = get_settings()
        known_queues = {"default", *settings.queues, *registry.queues()}
        timeout, max_time = given["shutdown_timeout"], given["max_time"]
        try:
            check_threads()
            options = make_options(
                queues=given["queues"],
                known_queues=sorted(known_queues),
                concurrency=given["concurrency"],
                threads=given["threads"],
                processes=given["processes"],
                drain=given["drain"],
                max_jobs=given["max_jobs"],
                max_time=None if max_time is None else timedelta(seconds=max_time),
                max_jobs_per_child=given["max_jobs_per_child"],
                max_memory_per_child=given["max_memory_per_child"],
                shutdown_timeout=settings.shutdown_timeout if timeout is None else timedelta(seconds=timeout),
            )
            for queue in sorted(options.queues.keys() - known_queues):
                logger.warning(
                    "--queues %r: no handler, periodic job or setting names this queue "
                    "(AWA['QUEUES'] says that it is meant)",
                    queue,
                )
            supervisor = Supervisor(options)
            code = run_with_reloader(supervisor) if given["reload"] else supervisor.run()
        except AwaError as exc:
            raise CommandError(str(exc)) from exc
        if code:
            sys.exit(code)
