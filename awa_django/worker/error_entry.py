"""Entries of ``errors``: what the row of a job says of an attempt that did not complete, as JSON text."""

from __future__ import annotations

import json
import traceback

import psycopg

from awa_django.codec import clean_text
from awa_django.storage.rows import Run

# What is kept of an error, in characters: 1,000 attempts of these still make a row one can open.
ERROR_LIMIT = 2_000
TRACEBACK_LIMIT = 8_000
TRACEBACK_FRAMES = 30


def entry(
    run: Run,
    error: str,
    *,
    worker: str,
    outcome: str,
    class_name: str | None = None,
    trace: str | None = None,
    by: str | None = None,
) -> str:
    """One entry of ``errors`` as JSON text; the database adds ``at`` and ``attempted_at``."""
    fields: dict[str, str | int] = {
        "error": clean_text(error, ERROR_LIMIT),
        "attempt": min(run.attempt, run.max_attempts),
        "run_lease": run.run_lease,
        "outcome": outcome,
        "worker": worker,
    }
    if class_name is not None:
        fields["class"] = clean_text(class_name, ERROR_LIMIT)
    if by is not None:
        fields["by"] = by
    if trace is not None:
        fields["traceback"] = clean_text(trace, TRACEBACK_LIMIT)
    return json.dumps(fields)


def superseded(run_lease: int | None, *, worker: str, what: str) -> str:
    """The error entry of a job that cannot go on because another one holds its unique key."""
    return _unfinished(
        run_lease, f"superseded: {what}, but another job holds its unique key", worker, "superseded"
    )


def refused(exc: Exception, *, worker: str, what: str) -> str:
    """The error entry of a job that the database refuses to move on, by the reason that it gives."""
    if isinstance(exc, psycopg.errors.UniqueViolation):
        return superseded(None, worker=worker, what=what)
    return _unfinished(None, f"{what}, but the database refuses: {exc}", worker, "unwritable")


def unwritable(run_lease: int | None, *, worker: str, what: str, error: str) -> str:
    """The error entry of a job whose outcome the database refuses."""
    return _unfinished(run_lease, f"could not be stored as {what}: {error}", worker, "unwritable")


def _unfinished(run_lease: int | None, error: str, worker: str, outcome: str) -> str:
    fields: dict[str, str | int] = {
        "error": clean_text(error, ERROR_LIMIT),
        "outcome": outcome,
        "worker": worker,
    }
    if run_lease is not None:
        fields["run_lease"] = run_lease
    return json.dumps(fields)


def tell(exc: BaseException) -> tuple[str, str, str]:
    """What an exception says, its class, and where it was raised; whatever is wrong with it."""
    return _message(exc), _class_name(exc), _traceback(exc)


def _message(exc: BaseException) -> str:
    try:
        text = str(exc)
    except BaseException:  # noqa: BLE001  (a broken __str__ of the user's own exception)
        text = "<its text cannot be had: __str__ raised>"
    return text or _class_name(exc)


def _class_name(exc: BaseException) -> str:
    cls = type(exc)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _traceback(exc: BaseException) -> str:
    """The innermost frames; the handler's caller here is left out."""
    try:
        lines = traceback.format_exception(type(exc), exc, exc.__traceback__, limit=-TRACEBACK_FRAMES)
    except BaseException:  # noqa: BLE001
        return "<its traceback cannot be formatted>"
    text = "".join(lines)
    return text if len(text) <= TRACEBACK_LIMIT else "[...]\n" + text[-(TRACEBACK_LIMIT - 6) :]
