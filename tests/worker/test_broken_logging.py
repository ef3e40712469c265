"""A project's log handler that raises costs a record: runs end as ever, and their slots are given back."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from awa_django.logs import get_logger
from awa_django.states import JobState
from awa_django.storage.rows import Ending
from tests.worker.completer_desk import CompleterDesk


class Broken(logging.Handler):
    """Raises before it comes to ``emit``, where ``logging`` would catch it: as a filter does."""

    def handle(self, record: logging.LogRecord) -> bool:
        raise AttributeError("the record has no request")


@pytest.fixture
def broken() -> Iterator[logging.Handler]:
    handler = Broken()
    logging.getLogger("awa_django").addHandler(handler)
    yield handler
    logging.getLogger("awa_django").removeHandler(handler)


def test_logger_never_raises(broken: logging.Handler, capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("awa_django.test_broken_logging").warning("a word")
    told = capsys.readouterr().err
    assert "a log record of awa_django.test_broken_logging was lost" in told
    assert "the record has no request" in told


@pytest.mark.django_db(transaction=True)
def test_run_whose_end_cannot_be_logged_is_written_and_given_back(
    broken: logging.Handler, desk: CompleterDesk
) -> None:
    failed, completed = desk.run(), desk.run()
    desk.completer.start()
    desk.completer.put(failed, Ending(failed.attempt, JobState.FAILED, '{"outcome": "failed"}'))
    desk.complete(completed)
    desk.settle()
