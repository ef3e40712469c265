"""Loggers whose records stay what they are, whatever text of a row or of an error is in them.

A kind, a queue, a worker's name and an error's message are data: with a line end in it one could forge
a record, with an escape it could rewrite a terminal, and a database error quotes whole rows.
"""

from __future__ import annotations

import logging
import traceback

import psycopg
from django.db import Error

# What one value of a record may take, in characters.
LONGEST_VALUE = 2_000
_INDENT = "    "


def get_logger(name: str) -> logging.Logger:
    """The logger of that name, with values of its records on one line and tracebacks indented."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, _OneLine) for each in logger.filters):
        logger.addFilter(_OneLine())
    return logger


def printable(text: str) -> str:
    """The text on one line, with what a terminal would obey (escapes, line ends, bidi marks) spelled out."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


class _OneLine(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_shown(value) for value in record.args)
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            # Formatters take this text as it is; no line of it can be taken for a record.
            lines = "".join(traceback.format_exception(*record.exc_info)).splitlines()
            record.exc_text = "\n".join(_INDENT + printable(line) for line in lines)
        return True


def _shown(value: object) -> object:
    if isinstance(value, psycopg.Error | Error):
        # The first line says what is wrong; those behind it quote the row, secrets included.
        value = next(iter(str(value).splitlines()), "") or type(value).__name__
    elif isinstance(value, BaseException):
        value = str(value) or type(value).__name__
    if not isinstance(value, str):
        return value
    shown = printable(value[:LONGEST_VALUE])
    return f"{shown} [...]" if len(value) > LONGEST_VALUE else shown
