"""``manage.py awa_jobs``: find jobs, look at one, ask why it has not run, and change it."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError
from django.db import connections
from django.utils import timezone, translation

from awa_django.errors import JobNotFound
from awa_django.management import arguments, detail, selection
from awa_django.management.base import MISUSED, NOT_AS_ASKED, OperatorCommand
from awa_django.management.output import Cell, number, shorten
from awa_django.management.verbs import VERBS, Account, Verb
from awa_django.operations import HIGHEST_PRIORITY, LOWEST_PRIORITY
from awa_django.states import DEFERRED_STATES, JobState
from awa_django.storage.listing import WINDOW, ListedJob, Wanted
from awa_django.storage.operate import highest_id
from awa_django.why import explain

INTERRUPTED = 130
LONGEST_LIST = 1_000
# Outcomes that are printed one by one, and how far matches are counted before the question.
ROWS_SHOWN, COUNTED = 50, 10_000
# Seconds between two lines of progress.
SAYS_EVERY = 2.0


class Command(OperatorCommand):
    help = (
        "Lists jobs, shows one, says why it has not run, and changes jobs by id or by filter. "
        "Exit codes: 0 done, 1 a job does not exist or was left as it is, "
        "3 the database could not be asked, 130 stopped by Ctrl-C."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        verbs = self.take_verbs(parser)
        listing = self.add_verb(verbs, "list", "the newest jobs that match")
        selection.add_filter(listing)
        listing.add_argument("--limit", type=arguments.positive, default=20, metavar="N", help="default: 20")
        listing.add_argument("--after", type=arguments.job_id, metavar="ID", help="go on behind this job")
        listing.add_argument(
            "--max-seconds",
            type=arguments.positive,
            metavar="N",
            help="look on for so long where few jobs match",
        )
        for name, text in (
            ("show", "one job with its arguments, result and errors; secrets are masked"),
            ("why", "why a job has not run, and what to do"),
        ):
            self.add_verb(verbs, name, text).add_argument("id", type=arguments.job_id)
        for verb in VERBS.values():
            self._add_changing(self.add_verb(verbs, verb.name, verb.help), verb)

    @staticmethod
    def _add_changing(parser: ArgumentParser, verb: Verb) -> None:
        parser.add_argument("ids", nargs="*", type=arguments.job_id, metavar="ID")
        parser.add_argument(
            "--all-matching", action="store_true", help="all jobs that the filter finds, instead of ids"
        )
        selection.add_filter(parser, verb.states)
        parser.add_argument("--yes", action="store_true", help="do not ask before all that match are changed")
        parser.add_argument("--dry-run", action="store_true", help="change nothing, name what would be")
        if verb.name == "cancel":
            parser.add_argument("--reason", default="", help="what the error entry of a running job says")
        elif verb.name == "reschedule":
            parser.add_argument("--at", type=arguments.instant, required=True, metavar="INSTANT")
        elif verb.name == "set-priority":
            priorities = f"{LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
            parser.add_argument("--priority", type=int, required=True, metavar="N", help=priorities)
        elif verb.name == "move":
            parser.add_argument("--to", required=True, metavar="NAME", help="the queue to move them to")

    def perform(self) -> int:
        verb = VERBS.get(self.options["verb"])
        if verb is not None:
            return self._change(verb)
        read = {"list": self._list, "show": self._show, "why": self._why}
        return read[self.options["verb"]]()

    def _list(self) -> int:
        limit = self.options["limit"]
        if limit > LONGEST_LIST:
            raise CommandError(f"--limit is {LONGEST_LIST:,} at most: go on with --after", returncode=MISUSED)
        wanted = selection.read_filter(self.options)
        seconds = self.options["max_seconds"]
        found = selection.find(
            self.alias,
            wanted,
            before_id=self.options["after"],
            limit=limit,
            longest=None if seconds is None else timedelta(seconds=seconds),
        )
        if self.options["json"]:
            jobs = [job._asdict() for job in found.jobs]
            self.out.document({"jobs": jobs, "next_after": found.before_id})
            return 0
        self.out.table(
            ("ID", "STATE", "KIND", "QUEUE", "PRIORITY", "ATTEMPTS", "WHEN", "TAGS"),
            [_row(job) for job in found.jobs],
        )
        if found.before_id is not None and len(found.jobs) < limit:
            looked = f"{WINDOW:,} rows of each table" if seconds is None else f"rows for {seconds} s"
            self.note(
                f"looked through {looked}; there may be more: --after {found.before_id} goes on there, "
                "--max-seconds N looks on for longer"
            )
        elif found.before_id is not None:
            self.out.line(f"more: --after {found.before_id}", "dim")
        return 0

    def _show(self) -> int:
        job = detail.document(self.alias, self.options["id"])
        if self.options["json"]:
            self.out.document(job)
        else:
            detail.show(self.out, job)
        return 0

    def _why(self) -> int:
        job_id = self.options["id"]
        with translation.override("en"):  # as is all that the commands say
            reasons = explain(job_id, using=self.alias)
        if any(reason.code == "not_found" for reason in reasons):
            raise JobNotFound(job_id)
        if self.options["json"]:
            keys = ("code", "text", "advice", "job_id")
            listed = [{key: getattr(reason, key) for key in keys} for reason in reasons]
            self.out.document({"id": job_id, "reasons": listed})
            return 0
        for reason in reasons:
            self.out.line(reason.text, "head")
            if reason.advice:
                self.out.line(f"    {reason.advice}")
        return 0

    def _change(self, verb: Verb) -> int:
        options = self.options
        options["by"] = arguments.user()
        account = Account(verb, is_dry_run=options["dry_run"])
        code = 0
        try:
            if self._is_by_filter():
                code = self._change_matching(account)
            else:
                account.run(options["ids"], options, self.alias)
        except ValueError as exc:  # a value that only the operation knows to be wrong
            raise CommandError(str(exc), returncode=MISUSED) from exc
        self._report(account)
        return code or (NOT_AS_ASKED if account.refused_count else 0)

    def _is_by_filter(self) -> bool:
        by_filter: bool = self.options["all_matching"]
        has_filter = not selection.is_any(self.options)
        wrong = ""
        if by_filter and self.options["ids"]:
            wrong = "give ids or --all-matching, not both"
        elif by_filter and not has_filter:
            wrong = "--all-matching needs --state, --kind, --queue or --tag: nothing is done to all jobs"
        elif not by_filter and has_filter:
            wrong = "a filter needs --all-matching"
        elif not by_filter and not self.options["ids"]:
            wrong = "give the ids of jobs, or --all-matching with a filter"
        if wrong:
            raise CommandError(wrong, returncode=MISUSED)
        return by_filter

    def _change_matching(self, account: Account) -> int:
        """Walk through all that match; the exit code. Jobs that were enqueued since it began are left."""
        wanted = selection.read_filter(self.options, account.verb.states)
        below = highest_id(connections[self.alias]) + 1
        if not account.is_dry_run and not self.options["yes"]:
            self._ask(account.verb, wanted, below)
        said_at = time.monotonic()
        try:
            for jobs in selection.walk(self.alias, wanted, below=below):
                if account.is_dry_run:
                    account.add((job.id for job in jobs), ())
                else:
                    account.run_matching([job.id for job in jobs], wanted, self.options, self.alias)
                if time.monotonic() - said_at > SAYS_EVERY:
                    self.note(f"{account.changed_count:,} {account.verb.done} so far")
                    said_at = time.monotonic()
        except KeyboardInterrupt:
            self.note("stopped: the same command goes on with what still matches")
            return INTERRUPTED
        return 0

    def _ask(self, verb: Verb, wanted: Wanted, below: int) -> None:
        if not sys.stdin.isatty() or self.options["json"]:
            raise CommandError("say --yes: there is nobody to ask here", returncode=MISUSED)
        found = selection.count_matching(self.alias, wanted, below=below, cap=COUNTED)
        jobs = f"{number(found, cap=COUNTED).text} {'job matches' if found == 1 else 'jobs match'}"
        self.stderr.write(f"{verb.name}: {jobs}. Go on? [y/N] ", ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was changed", returncode=NOT_AS_ASKED)

    def _report(self, account: Account) -> None:
        if self.options["json"]:
            self.out.document(account.document())
            return
        done = f"would be {account.verb.done}" if account.is_dry_run else account.verb.done
        outcomes = {job_id: Cell(done, "good") for job_id in account.changed}
        outcomes |= {job["id"]: Cell(f"left: {job['reason']}", "warning") for job in account.refused}
        if 0 < account.changed_count + account.refused_count <= ROWS_SHOWN:
            self.out.table(
                ("ID", "OUTCOME"), [(_id(job_id), outcomes[job_id]) for job_id in sorted(outcomes)]
            )
        left = f", {account.refused_count:,} left as they are" if account.refused_count else ""
        self.out.line(f"{account.changed_count:,} {done}{left}", "warning" if left else "")


def _id(job_id: int) -> Cell:
    return Cell(str(job_id), is_number=True)


def _row(job: ListedJob) -> tuple[Cell | str, ...]:
    style: Any = detail.STYLES.get(job.state, "")
    return (
        _id(job.id),
        Cell(job.state, style),
        job.kind,
        job.queue,
        Cell(str(job.priority), is_number=True),
        Cell(f"{job.attempt}/{job.max_attempts}", is_number=True),
        _when(job),
        ", ".join(job.tags),
    )


def _when(job: ListedJob) -> str:
    if job.state in DEFERRED_STATES:
        seconds = (job.run_at - timezone.now()).total_seconds()
        return f"due in {shorten(seconds)}" if seconds > 0 else f"due {shorten(-seconds)} ago"
    if job.finalized_at is not None:
        return f"ended {_ago(job.finalized_at)}"
    if job.state == JobState.AVAILABLE:
        return f"due {_ago(job.run_at)}"
    return f"begun {_ago(job.attempted_at or job.created_at)}"


def _ago(instant: datetime) -> str:
    return f"{shorten(max((timezone.now() - instant).total_seconds(), 0))} ago"
