"""``manage.py awa_doctor``: check the invariants of the queue in one snapshot, and its surroundings."""

from __future__ import annotations

from dataclasses import asdict

from awa_django import doctor
from awa_django.doctor import Finding, Measures
from awa_django.management.base import NOT_AS_ASKED, OperatorCommand
from awa_django.management.output import Cell, shorten


class Command(OperatorCommand):
    help = (
        "Checks the invariants of the queue, measures its surroundings, and says what to do. "
        "Exit codes: 0 all invariants hold, 1 one does not, 3 the database could not be asked."
    )

    def perform(self) -> int:
        findings = doctor.diagnose(self.alias)
        measures = doctor.measure(self.alias)
        findings += measures.findings
        if self.options["json"]:
            measured = asdict(measures)
            del measured["findings"]
            self.out.document({"findings": [asdict(finding) for finding in findings], "measured": measured})
        else:
            self._show(findings, measures)
        return 0 if all(finding.is_warning for finding in findings) else NOT_AS_ASKED

    def _show(self, findings: list[Finding], measures: Measures) -> None:
        for finding in findings:
            self.out.line(str(finding), "warning" if finding.is_warning else "bad")
            self.out.line(f"    {finding.advice}")
        if not findings:
            self.out.line("Nothing found: all invariants hold.", "good")
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
