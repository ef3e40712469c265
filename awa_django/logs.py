"""Loggers whose records stay what they are, whatever text of a row or of an error is in them.

A kind, a queue, a worker's name and an error's message are data: with a line end in it one could forge
a record, with an escape it could rewrite a terminal, and a database error quotes whole rows.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

import psycopg
from django.db import Error

# What one value of a record may take, in characters.
LONGEST_VALUE = 2_000
# Texts of rows that records have as attributes, for a formatter's own fields.
EXTRA_TEXTS = ("kind", "queue", "exception")
_INDENT = "    "
_loggers: list[logging.Logger] = []


def get_logger(name: str) -> logging.Logger:
    """The logger of that name, with values of its records on one line and tracebacks indented.

    It never raises: a filter or handler of the project's own that breaks costs the record, and no job.
    """
    logger = logging.getLogger(name)
    if logger not in _loggers:
        _loggers.append(logger)
        logger.addFilter(_OneLine())
        logger.handle = _without_raising(logger.handle)  # type: ignore[assignment, method-assign]
    return logger


def undo_disabling() -> None:
    """Let these loggers be heard, whether they were there before the project's LOGGING or not.

    It disables those that were unless it says ``disable_existing_loggers: False``; and whether they were is
    chance: settings may import a retry policy, and a worker's process imports itself before its project.
    """
    for logger in _loggers:
        logger.disabled = False


def speak_on_a_terminal() -> None:
    """Show whoever has started a worker by hand its log from INFO on, where the project says nothing of it.

    With Django's default settings a person would see neither its start nor the jobs that are tried again.
    """
    logger = logging.getLogger("awa_django")
    if logger.hasHandlers() or logger.level != logging.NOTSET or not _is_terminal(sys.stderr):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def printable(text: str) -> str:
    """The text on one line, with what a terminal would obey (escapes, line ends, bidi marks) spelled out."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def shown(value: object) -> object:
    """What a record may hold of the value: a text on one line and not too long, of a database error its
    first line, as those behind it quote the row; anything but texts and errors as it is."""
    if isinstance(value, BaseException):
        value = _message(value)
    if not isinstance(value, str):
        return value
    text = printable(value[:LONGEST_VALUE])
    return f"{text} [...]" if len(value) > LONGEST_VALUE else text


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def _without_raising(handle: Callable[[logging.LogRecord], None]) -> Callable[[logging.LogRecord], None]:
    def handle_or_tell(record: logging.LogRecord) -> None:
        try:
            handle(record)
        except Exception:  # noqa: BLE001  (as `logging` does with what a handler's emit raises)
            if logging.raiseExceptions:
                with suppress(Exception):  # there may be no stderr, or a broken one
                    sys.stderr.write(f"a log record of {record.name} was lost:\n")
                    traceback.print_exc()

    return handle_or_tell


class _OneLine(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(shown(value) for value in record.args)
        for name in EXTRA_TEXTS:
            if name in record.__dict__:
                record.__dict__[name] = shown(record.__dict__[name])
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            # Formatters take this text as it is; no line of it can be taken for a record.
            lines = "".join(traceback.format_exception(*record.exc_info)).splitlines()
            record.exc_text = "\n".join(_INDENT + printable(line) for line in lines)
        return True


def _message(exc: BaseException) -> str:
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001  (a broken __str__ of the user's own exception)
        text = ""
    if isinstance(exc, psycopg.Error | Error):
        text = next(iter(text.splitlines()), "")
    return text or type(exc).__name__
