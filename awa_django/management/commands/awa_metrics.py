"""``manage.py awa_metrics``: the metrics of the queue in Prometheus' text format."""

from __future__ import annotations

import os
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError

from awa_django.management.base import what_is_wrong
from awa_django.metrics import render


class Command(BaseCommand):
    help = (
        "Prints the metrics of the queue in Prometheus' text format, or writes them to a file for the "
        "textfile collector of the node exporter. Exit code 3: the database could not be asked."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="replace this file in one step instead of printing"
        )

    def handle(self, *args: Any, output: Path | None, **options: Any) -> None:
        try:
            text = render()
        except (DatabaseError, InterfaceError) as exc:
            raise CommandError(what_is_wrong(exc), returncode=3) from exc
        if output is None:
            self.stdout.write(text, ending="")
            return
        try:
            _replace(output, text)
        except OSError as exc:
            raise CommandError(f"{output} could not be written: {exc.strerror}", returncode=3) from exc


def _replace(path: Path, text: str) -> None:
    """Whoever reads the file meanwhile sees the old text or the new one, whole."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(descriptor)
    new = Path(name)
    try:
        new.write_text(text, encoding="utf-8")
        new.chmod(0o644)  # the collector is another user
        new.replace(path)
    except BaseException:
        new.unlink()
        raise
