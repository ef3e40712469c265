"""Records stay one line each, quote no rows, and show no control characters, whatever is in a value."""

from __future__ import annotations

import io
import logging
import logging.config
import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction

from awa_django.logs import LONGEST_VALUE, get_logger, speak_on_a_terminal
from tests.conftest import PROJECT_DIR

FORGED = "k\n2026-01-01 ERROR forged\r\x1b[2J\u2028\u202e\x85"


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = get_logger("awa_django.test_logs")
    logger.addHandler(handler)
    logger.propagate = False
    yield output
    logger.removeHandler(handler)
    logger.propagate = True


def test_value_stays_on_the_line_of_its_record(output: io.StringIO) -> None:
    get_logger("awa_django.test_logs").warning("kind %s in %r after %.1f s", FORGED, "mail", 1.25)
    assert output.getvalue() == (
        "WARNING kind k\\n2026-01-01 ERROR forged\\r\\x1b[2J\\u2028\\u202e\\x85 in 'mail' after 1.2 s\n"
    )


def test_value_has_a_greatest_length(output: io.StringIO) -> None:
    get_logger("awa_django.test_logs").warning("%s", "x" * 1_000_000)
    assert output.getvalue() == f"WARNING {'x' * LONGEST_VALUE} [...]\n"


@pytest.mark.django_db
@pytest.mark.parametrize("django", [True, False], ids=["Django's error", "psycopg's error"])
def test_error_of_the_database_quotes_no_row(output: io.StringIO, django: bool) -> None:
    with pytest.raises(IntegrityError) as raised, transaction.atomic():
        connection.cursor().execute(
            "INSERT INTO awa.jobs_hot (kind, args, priority) VALUES ('k', '{\"card\": \"4111\"}', 5000)"
        )
    error = raised.value if django else raised.value.__cause__
    assert "4111" in str(error)
    assert django or isinstance(error, psycopg.Error)
    get_logger("awa_django.test_logs").warning("refused: %s", error)
    assert re.fullmatch(r'WARNING refused: new row for relation "jobs_hot" [^\n]*\n', output.getvalue())
    assert "4111" not in output.getvalue()


def test_lines_of_a_traceback_are_no_records(output: io.StringIO) -> None:
    try:
        raise LookupError(FORGED)
    except LookupError:
        get_logger("awa_django.test_logs").exception("stumbled")
    first, *lines = output.getvalue().splitlines()
    assert first == "ERROR stumbled"
    assert lines[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in lines)
    assert "\x1b" not in output.getvalue()


def test_every_logger_of_the_package_is_such_a_one() -> None:
    for path in (PROJECT_DIR / "awa_django").rglob("*.py"):
        if path.name != "logs.py":
            assert "getLogger" not in path.read_text(encoding="utf-8"), path


def test_fields_for_a_formatter_are_as_harmless_as_the_message(output: io.StringIO) -> None:
    logger = get_logger("awa_django.test_logs")
    logger.handlers[0].setFormatter(logging.Formatter("%(kind)s|%(queue)s|%(exception)s|%(job_id)s"))
    logger.warning("a job", extra={"kind": FORGED, "queue": FORGED, "exception": FORGED, "job_id": 5})
    line = output.getvalue().removesuffix("\n")
    assert line.isprintable()
    assert line.endswith("|5")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def unconfigured() -> Iterator[logging.Logger]:
    """The package's logger as it is where no project says anything of it, and pytest does not listen."""
    logger = logging.getLogger("awa_django")
    before = (logger.handlers, logger.level, logger.propagate)
    logger.handlers, logger.propagate = [], False
    logger.setLevel(logging.NOTSET)
    try:
        yield logger
    finally:
        logger.handlers, level, logger.propagate = before
        logger.setLevel(level)


def test_a_person_at_a_terminal_sees_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with unconfigured():
        speak_on_a_terminal()
        speak_on_a_terminal()  # the children inherit what the forkserver has
        get_logger("awa_django.test_logs").info("worker %s serves mail", "w-1")
    assert re.fullmatch(r"\d\d:\d\d:\d\d worker w-1 serves mail\n", terminal.getvalue())


@pytest.mark.parametrize("where", ["in a pipe", "without stderr", "closed", "with a handler", "with a level"])
def test_elsewhere_the_log_is_as_configured(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    closed = io.StringIO()
    closed.close()
    streams = {"in a pipe": io.StringIO(), "without stderr": None, "closed": closed}
    monkeypatch.setattr("sys.stderr", streams.get(where, Terminal()))
    with unconfigured() as logger:
        if where == "with a handler":
            logger.addHandler(logging.NullHandler())
        if where == "with a level":
            logger.setLevel(logging.ERROR)
        before = (list(logger.handlers), logger.level)
        speak_on_a_terminal()
        assert (logger.handlers, logger.level) == before


def test_loggers_that_the_settings_disable_for_being_there_are_heard(output: io.StringIO) -> None:
    """In worker processes that had no fork server's Django, all failures of jobs went unsaid."""
    logger = get_logger("awa_django.test_logs")
    known = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    disabled = {each: each.disabled for each in known}
    try:
        logging.config.dictConfig({"version": 1})  # as most projects write it
        assert logger.disabled
        apps.get_app_config("awa").ready()
        logger.warning("said")
    finally:
        for each, was_disabled in disabled.items():
            each.disabled = was_disabled
    assert output.getvalue() == "WARNING said\n"
