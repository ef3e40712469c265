"""``manage.py awa_doctor``: check the invariants of the queue in one snapshot."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from awa_django import doctor


class Command(BaseCommand):
    help = "Checks the invariants of the queue and names what breaks them. Exits with 1 if something does."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print a JSON array of findings")
        parser.add_argument("--database", help="the alias to look at; the queue's own by default")

    def handle(self, *args: Any, **options: Any) -> None:
        findings = doctor.diagnose(options["database"])
        if options["json"]:
            self.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=2))
        else:
            for finding in findings:
                self._print(finding)
            if not findings:
                self.stdout.write("Nothing found: all invariants hold.")
        if not all(finding.is_warning for finding in findings):
            raise SystemExit(1)

    def _print(self, finding: doctor.Finding) -> None:
        style = self.style.WARNING if finding.is_warning else self.style.ERROR
        self.stdout.write(style(str(finding)))
        self.stdout.write(f"    {finding.advice}")
