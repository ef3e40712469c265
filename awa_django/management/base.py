"""OperatorCommand: the options, errors and exit codes that the operator's commands share.

Exit codes: 0 done, 1 not all is as asked or as it should be, 2 the command line was not understood,
3 the database could not be asked, 141 who reads the answer has seen enough (``| head``).
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from argparse import SUPPRESS, ArgumentParser
from contextlib import nullcontext, suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError, connections
from django.utils.connection import ConnectionDoesNotExist

from awa_django.committing import committing
from awa_django.conf import get_settings
from awa_django.errors import AwaError
from awa_django.logs import printable
from awa_django.management.output import Output, Style

NOT_AS_ASKED, MISUSED, NOT_ASKED = 1, 2, 3
# What a shell says of a program that SIGPIPE has ended.
READER_IS_GONE = 141
# undefined_table, undefined_column, invalid_schema_name; insufficient_privilege; query_canceled.
_NOT_INSTALLED, _MAY_NOT, _TOOK_TOO_LONG = {"42P01", "42703", "3F000"}, "42501", "57014"


class OperatorCommand(BaseCommand, ABC):
    """A command of verbs or of none. ``out`` prints; ``options`` are those of the command line."""

    requires_system_checks = ()
    out: Output
    options: dict[str, Any]
    is_program = False
    """Whether it was started from a command line."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--database", help="the alias to work on; the queue's own by default")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    @staticmethod
    def take_verbs(parser: ArgumentParser) -> Any:
        """What ``add_verb`` adds to."""
        return parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def add_verb(self, verbs: Any, name: str, text: str) -> ArgumentParser:
        """A parser of a verb, which takes the shared options too: before it or behind it."""
        verb: ArgumentParser = verbs.add_parser(name, help=text, description=text)
        verb.add_argument("--database", default=SUPPRESS, help="the alias to work on")
        verb.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON document")
        # Django's own, which it takes anywhere else on a command line.
        for option in ("--no-color", "--force-color", "--traceback", "--skip-checks"):
            verb.add_argument(option, action="store_true", default=SUPPRESS, help=SUPPRESS)
        for option in ("--settings", "--pythonpath"):
            verb.add_argument(option, default=SUPPRESS, help=SUPPRESS)
        verb.add_argument("-v", "--verbosity", type=int, choices=range(4), default=SUPPRESS, help=SUPPRESS)
        return verb

    def run_from_argv(self, argv: list[str]) -> None:
        self.is_program = True
        super().run_from_argv(argv)

    def handle(self, *args: Any, **options: Any) -> None:
        self.options = options
        self.out = Output(self.stdout, no_color=options["no_color"], force_color=options["force_color"])
        alias = self.alias
        try:
            if connections[alias].vendor != "postgresql":
                raise CommandError(f"the alias {alias!r} is no PostgreSQL database", returncode=NOT_ASKED)
            # Nobody else commits what a program of its own does; who uses call_command may roll it back.
            with committing(alias) if self.is_program else nullcontext():
                code = self.perform()
            self.stdout.flush()
        except BrokenPipeError:
            _drop_what_is_buffered()
            raise SystemExit(READER_IS_GONE) from None
        except ConnectionDoesNotExist:
            known = ", ".join(map(repr, connections))
            raise CommandError(
                f"there is no database alias {alias!r}, only {known}", returncode=MISUSED
            ) from None
        except AwaError as exc:
            raise CommandError(printable(str(exc)), returncode=NOT_AS_ASKED) from exc
        except (DatabaseError, InterfaceError) as exc:
            raise CommandError(what_is_wrong(exc), returncode=NOT_ASKED) from exc
        if code:
            raise SystemExit(code)

    @property
    def alias(self) -> str:
        """The database to work on."""
        given: str | None = self.options["database"]
        return given or get_settings().database

    @abstractmethod
    def perform(self) -> int:
        """Do what the options say; the exit code."""

    def answer(self, document: dict[str, Any], text: str, style: Style = "") -> None:
        """Say what was done: as a document, or on one line."""
        if self.options["json"]:
            self.out.document(document)
        else:
            self.out.line(text, style)

    def note(self, text: str) -> None:
        """Say something beside the answer, on stderr."""
        self.stderr.write(printable(text), self.style.WARNING)


def _drop_what_is_buffered() -> None:
    """Or the interpreter would try to write it at its end, and complain."""
    with suppress(OSError, ValueError):  # stdout may be no file, or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]


def what_is_wrong(exc: Exception) -> str:
    """One line on an error of the database, with what to do where that is known."""
    state = getattr(exc.__cause__, "sqlstate", None)
    first_line = printable(next(iter(str(exc).strip().splitlines()), type(exc).__name__))
    if state in _NOT_INSTALLED:
        return (
            f"the awa schema is missing or of another release, `manage.py migrate awa` makes it: {first_line}"
        )
    if state == _MAY_NOT:
        return f"this database role may not do that (docs/roles.md): {first_line}"
    if state == _TOOK_TOO_LONG:
        return f"the database took too long: {first_line}"
    return f"the database could not be asked: {first_line}"
