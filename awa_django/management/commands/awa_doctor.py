"""``manage.py awa_doctor``: check the invariants of the queue, and measure its surroundings."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from dataclasses import asdict
from datetime import timedelta

from awa_django import doctor
from awa_django.doctor import Diagnosis, Measures
from awa_django.management import arguments
from awa_django.management.base import NOT_AS_ASKED, OperatorCommand
from awa_django.management.output import Cell, shorten

# Enough for some millions of jobs, and not too long for somebody who waits for it.
SECONDS = 60
# Between two lines of progress.
TELLS_EVERY = 2.0


class Command(OperatorCommand):
    help = (
        "Checks the invariants of the queue, measures its surroundings, and says what to do. "
        "Exit codes: 0 all invariants hold, 1 one does not, 3 the database could not be asked."
    )

    _told_at = 0.0

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        how_far = parser.add_mutually_exclusive_group()
        how_far.add_argument(
            "--max-seconds",
            type=arguments.positive,
            default=SECONDS,
            metavar="N",
            help="stop looking at rows after so long, and say where (default: %(default)s)",
        )
        how_far.add_argument("--quick", action="store_true", help="only what takes no look at every row")
        how_far.add_argument(
            "--full", action="store_true", help="every row, in one snapshot, however long that takes"
        )

    def perform(self) -> int:
        options = self.options
        longest = None if options["full"] else timedelta(seconds=options["max_seconds"])
        self._told_at = time.monotonic()
        diagnosis = doctor.examine(
            self.alias, longest=longest, is_quick=options["quick"], tell=self._tell_progress
        )
        measures = doctor.measure(self.alias)
        diagnosis.findings += measures.findings
        if options["json"]:
            measured = asdict(measures)
            del measured["findings"]
            self.out.document({**asdict(diagnosis), "measured": measured})
        else:
            self._show(diagnosis, measures)
        return 0 if all(finding.is_warning for finding in diagnosis.findings) else NOT_AS_ASKED

    def _tell_progress(self, text: str) -> None:
        if self.stderr.isatty() and time.monotonic() - self._told_at > TELLS_EVERY:
            self.note(text)
            self._told_at = time.monotonic()

    def _show(self, diagnosis: Diagnosis, measures: Measures) -> None:
        for finding in diagnosis.findings:
            self.out.line(str(finding), "warning" if finding.is_warning else "bad")
            self.out.line(f"    {finding.advice}")
        if not diagnosis.findings:
            asked = " that were asked for" if diagnosis.left_out else ""
            self.out.line(f"Nothing found: all invariants{asked} hold.", "good")
        if diagnosis.left_out:
            self.out.line("Not looked at (--full looks at all, --max-seconds at more):", "warning")
            for text in diagnosis.left_out:
                self.out.line(f"    {text}")
        self.out.line("")
        self.out.facts(_measured(measures))


def _measured(measures: Measures) -> list[tuple[str, Cell | str]]:
    offset, notified = measures.clock_offset_seconds, measures.notify_seconds
    unknown = "not known"
    clock = unknown if offset is None else f"{shorten(abs(offset))} {'ahead' if offset > 0 else 'behind'}"
    return [
        ("clock", "as the database's" if offset == 0 else clock),
        ("NOTIFY", unknown if notified is None else f"arrives after {shorten(notified)}"),
        ("plan of the claim", measures.claim_plan or unknown),
        (
            "connections",
            unknown
            if measures.connections_open is None
            else f"{measures.connections_open} of {measures.connections_usable} are open; "
            f"the live workers may open {measures.connections_of_workers}",
        ),
    ]
