"""What the tests of commands share: run one, and a database that does not answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from pytest_django.plugin import DjangoDbBlocker


@dataclass(frozen=True)
class Ended:
    """What a command printed and how it ended. ``error`` is the message of its one line on stderr."""

    code: int
    stdout: str
    stderr: str
    error: str = ""

    @property
    def document(self) -> Any:
        """The one JSON document that is all of stdout."""
        return json.loads(self.stdout)


Manage = Callable[..., Ended]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def manage(monkeypatch: pytest.MonkeyPatch) -> Manage:
    """``manage("awa_jobs", "list")`` runs it here; with ``terminal=True`` on a terminal, as it seems."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "120")  # pytest-xdist says 80, in which cells wrap

    def run(*arguments: object, terminal: bool = False) -> Ended:
        stdout, stderr = Terminal() if terminal else StringIO(), StringIO()
        code, error = 0, ""
        try:
            call_command(*map(str, arguments), stdout=stdout, stderr=stderr)
        except CommandError as exc:
            # An error of argparse has the code that Django gives it on the command line.
            code, error = exc.returncode, str(exc)
        except SystemExit as exc:
            code = int(exc.code or 0)
        return Ended(code, stdout.getvalue(), stderr.getvalue(), error)

    return run


@pytest.fixture
def dead_alias(monkeypatch: pytest.MonkeyPatch, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """An alias of a server that is not there, for a test that needs no other."""
    settings = {**connections["default"].settings_dict, "HOST": "127.0.0.1", "PORT": "1"}
    monkeypatch.setitem(connections.settings, "dead", settings)
    with django_db_blocker.unblock():
        yield "dead"
    del connections["dead"]
