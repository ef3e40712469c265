"""manage.py demo: a mixed load through a real worker, and an account of every job."""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from example_project.shop.demo.account import LEGEND, account, endings, rates
from example_project.shop.demo.history import invent_an_hour
from example_project.shop.demo.load import Ending, Load, enqueue_load
from example_project.shop.demo.periodic import has_fired
from example_project.shop.demo.processes import MANAGE, running, stopped_by_signals
from example_project.shop.demo.traffic import Traffic

LOGIN = "demo"
# How often the progress bar asks the database.
LOOK_EVERY = 0.3


class Command(BaseCommand):
    help = (
        "Enqueue a mixed load, run it by a worker and account for every job. "
        "Exit codes: 0 all as designed, 1 not. With --web: serve the shop and the admin until Ctrl-C."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--orders", type=int, help="size of the load (default: 2000 orders, with --web 200)"
        )
        parser.add_argument("--processes", type=int, default=2, help="children of the worker (default: 2)")
        parser.add_argument(
            "--timeout", type=float, default=90, metavar="SECONDS", help="give up after this (default: 90)"
        )
        parser.add_argument(
            "--web", action="store_true", help="serve the shop and the admin, with visitors, on 127.0.0.1"
        )
        parser.add_argument("--port", type=int, default=8000, help="port for --web (default: 8000)")

    def handle(self, *_: Any, **options: Any) -> None:
        # What keeps coming to the web demo shall not be dwarfed by what it began with.
        orders = options["orders"]
        if orders is None:
            orders = 200 if options["web"] else 2000
        if orders < 1:
            raise CommandError("--orders must be at least 1")
        self.console = Console()
        call_command("migrate", verbosity=0)
        started = time.monotonic()
        load = enqueue_load(f"demo-{secrets.token_hex(4)}", orders)
        self.console.print(
            f"{len(load.ids())} jobs enqueued in {time.monotonic() - started:.1f} s; "
            f"{len(load.rolled_back)} orders rolled back, with their jobs"
        )
        worker = ("awa_worker", f"--processes={options['processes']}")
        try:
            with stopped_by_signals():
                if options["web"]:
                    self._serve(worker, options["port"])
                else:
                    self._run(worker, load, options["timeout"])
        except KeyboardInterrupt:
            self.console.print("stopped")
            if not options["web"]:
                sys.exit(1)

    def _run(self, worker: tuple[str, ...], load: Load, timeout: float) -> None:
        """Run the load to its end and say how it ended."""
        with tempfile.TemporaryDirectory() as directory:
            log = Path(directory, "worker.log")
            with log.open("w") as output, running(*worker, output=output) as process:
                self._watch(load, process, time.monotonic() + timeout)
            table, problems = account(load)
            if process.returncode:
                problems.append(f"the worker ended with exit code {process.returncode}")
            if problems:
                self.stdout.write(log.read_text())
        self.console.print(table, LEGEND)
        self.console.print(rates(load))
        doctor = subprocess.run([sys.executable, str(MANAGE), "awa_doctor"], check=False)
        if doctor.returncode:
            problems.append(f"awa_doctor found something (exit code {doctor.returncode})")
        if problems:
            raise CommandError("\n".join(problems))
        self.console.print(f"All {len(load.ids())} jobs are accounted for, each as designed.")

    def _watch(self, load: Load, worker: subprocess.Popen[str], deadline: float) -> None:
        """Show the progress until every job that can end has ended, the worker ends, or time is up."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self.console) as progress:
            bar = progress.add_task("jobs ended", total=len(load.ids_to_end()), note="")
            while worker.poll() is None and time.monotonic() < deadline:
                fired, ids = has_fired(load), load.ids_to_end()
                ends = Counter(endings(ids).values())
                ended = len(ids) - ends[Ending.UNFINISHED] - ends[Ending.SCHEDULED]
                note = f"{ends[Ending.RETRIED]} by a retry, {ends[Ending.FAILED]} failed"
                progress.update(bar, completed=ended, total=len(ids), note=note)
                if fired and ended == len(ids):
                    return
                time.sleep(LOOK_EVERY)

    def _serve(self, worker: tuple[str, ...], port: int) -> None:
        """The shop and the admin, with a worker and visitors, until Ctrl-C."""
        self._make_login()
        invent_an_hour()
        address = f"127.0.0.1:{port}"
        with running(*worker) as jobs, running("runserver", "--noreload", address) as web:
            self.console.print(
                f"\nDashboard  http://{address}/admin/awa/dashboard/  (login demo, password demo)"
                f"\nShop       http://{address}/\nAdmin      http://{address}/admin/"
            )
            self.console.print(
                "Orders keep coming in. The hour before, in the charts, is invented. "
                "Ctrl-C stops the server and the worker.\n"
            )
            traffic = Traffic()
            while jobs.poll() is None and web.poll() is None:
                traffic.step()
                time.sleep(LOOK_EVERY)
            ended = "server" if jobs.poll() is None else "worker"
        raise CommandError(f"the {ended} ended by itself: its output says why")

    def _make_login(self) -> None:
        if not settings.DEBUG:
            raise CommandError("demo --web makes a login that everybody knows: it needs DEBUG")
        users = get_user_model().objects
        if not users.filter(username=LOGIN).exists():
            users.create_superuser(LOGIN, password=LOGIN)
