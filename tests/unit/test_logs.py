"""Records stay one line each, quote no rows, and show no control characters, whatever is in a value."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction

from awa_django.logs import LONGEST_VALUE, get_logger
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
