"""One look at the database for everybody who looks at the dashboard.

A look is kept in Django's cache. Who finds that there is no mark for "somebody looks now" leaves one and
looks; all others are shown what the last look found. The mark goes by itself, so looks begin FRESH_FOR
apart however many people watch, and one whose process died holds up nobody for longer.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

import msgspec
import psycopg
from django.core.cache import cache
from django.db import OperationalError, connections, transaction
from django.utils.translation import gettext as _

from awa_django.conf import get_settings
from awa_django.storage.dashboard import STATEMENT_TIMEOUT, Snapshot, TooSlow, take_snapshot

# Longer than the longest look, which takes twice STATEMENT_TIMEOUT: looks never overlap.
FRESH_FOR = timedelta(seconds=5)
# What was seen last is shown, and said to be old, while the database cannot be asked.
KEPT_FOR = timedelta(minutes=10)
# Of those who come while the first look of all is under way.
LOOK_AGAIN_EVERY = 0.05


class Problem(StrEnum):
    """Why there is no newer snapshot. It is kept for all viewers: each reads it in his language."""

    TOO_SLOW = "too slow"
    LOCKED = "locked"
    FIRST = "first"

    @property
    def text(self) -> str:
        if self is Problem.LOCKED:
            return _("A table is locked, by a migration or by VACUUM FULL.")
        if self is Problem.FIRST:
            return _("Somebody else is asking the database for the first time.")
        seconds = STATEMENT_TIMEOUT.total_seconds()
        return _("The database did not answer within %(seconds)d seconds.") % {"seconds": seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is known: the newest snapshot, if any, and why there is no newer one."""

    snapshot: Snapshot | None
    problem: Problem | None = None


def look() -> Look:
    """The shared snapshot, at most about FRESH_FOR old; taken now if it is nobody else's turn."""
    if cache.add(_key("mark"), 1, FRESH_FOR.total_seconds()):
        return _look_at_database()
    seen = _last_seen()
    if seen is None:
        seen = _wait_for_first()
    return seen or Look(snapshot=None, problem=Problem.FIRST)


def _look_at_database() -> Look:
    try:
        seen = Look(snapshot=_ask())
    except TooSlow:
        seen = _say_why(Problem.TOO_SLOW)
    except OperationalError as exc:
        cause = exc.__cause__
        if isinstance(cause, psycopg.errors.QueryCanceled):
            seen = _say_why(Problem.TOO_SLOW)
        elif isinstance(cause, psycopg.errors.LockNotAvailable):
            seen = _say_why(Problem.LOCKED)
        else:
            raise
    cache.set(_key("seen"), msgspec.json.encode(seen).decode(), KEPT_FOR.total_seconds())
    return seen


def _ask() -> Snapshot:
    """A snapshot in a transaction, or a savepoint, whose settings are undone with it."""
    settings = get_settings()
    with transaction.atomic(using=settings.database):
        snapshot = take_snapshot(connections[settings.database])
        transaction.set_rollback(True, using=settings.database)
    return snapshot


def _say_why(problem: Problem) -> Look:
    before = _last_seen()
    return Look(snapshot=before.snapshot if before else None, problem=problem)


def _last_seen() -> Look | None:
    text = cache.get(_key("seen"))
    try:
        return None if text is None else msgspec.json.decode(text, type=Look)
    except msgspec.DecodeError:  # of a release with another shape
        return None


def _wait_for_first() -> Look | None:
    give_up_at = time.monotonic() + 2 * STATEMENT_TIMEOUT.total_seconds()
    while time.monotonic() < give_up_at:
        time.sleep(LOOK_AGAIN_EVERY)
        if seen := _last_seen():
            return seen
    return None


def _key(name: str) -> str:
    """Projects that share a cache do not share a queue."""
    place = connections[get_settings().database].settings_dict
    queue = repr([place[part] for part in ("HOST", "PORT", "NAME")])
    return f"awa-dashboard-{name}-{hashlib.blake2b(queue.encode(), digest_size=16).hexdigest()}"
