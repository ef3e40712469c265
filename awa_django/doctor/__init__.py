"""Doctor: what must hold and what should be known of the queue, each with what to do about it.

A violation means that a promise of this package is broken. A warning is about the surroundings: it
says why the queue may be slow or late, and breaks no promise. ``diagnose`` asks the database in one
snapshot, ``examine`` as much as a bound in time allows; ``measure`` looks at the surroundings on
connections of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from awa_django.conf import get_settings
from awa_django.doctor.examination import Diagnosis, Examination
from awa_django.doctor.measures import Measures, measure
from awa_django.doctor.questions import QUESTIONS, SCHEMA_OBJECTS, Finding, Question

__all__ = [
    "QUESTIONS", "SCHEMA_OBJECTS", "Diagnosis", "Finding", "Measures", "Question", "diagnose", "examine",
    "measure",
]  # fmt: skip

# A snapshot that old keeps every row that died since: claims get slower by the minute.
PINNED_AFTER = timedelta(minutes=5)
# Promotion is a matter of PROMOTE_INTERVAL; a minute covers a leader's failover.
PROMOTED_WITHIN = timedelta(minutes=1)
# The duty vacuums every 10 s under load; fewer dead rows cost a claim next to nothing.
DEAD_AT_LEAST = 100_000
UNVACUUMED_FOR = timedelta(minutes=10)


def diagnose(alias: str | None = None) -> list[Finding]:
    """All violations and warnings, on the queue's database or on ``alias``, seen in one snapshot.

    It reads every row, however long that takes. Inside an open transaction (a ``TestCase``) it uses
    that one as it is. Where objects of the schema are missing the invariants are not asked: the
    statements could not run.
    """
    return examine(alias, longest=None).findings


def examine(
    alias: str | None = None,
    *,
    longest: timedelta | None,
    is_quick: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Diagnosis:
    """What ``diagnose`` asks, within about that time: what was not looked at is said in ``left_out``.

    Then each range of 50,000 rows is seen in a snapshot of its own, so that none is held for long.
    ``is_quick`` asks only what an index or a small table knows. ``tell`` is told how far it is.
    """
    settings = get_settings()
    rescue_takes = settings.stale_after + 2 * settings.sweep_interval
    values = {
        "silent_for": rescue_takes.total_seconds(),
        "overdue_by": (2 * settings.sweep_interval).total_seconds(),
        "older_than": PINNED_AFTER.total_seconds(),
        "promotion_overdue_by": PROMOTED_WITHIN.total_seconds(),
        "dead_at_least": DEAD_AT_LEAST,
        "unvacuumed_for": UNVACUUMED_FOR.total_seconds(),
    }
    using = settings.database if alias is None else alias
    return Examination(using, values, longest=longest, is_quick=is_quick, tell=tell).run()
