"""What the machine of ``test_model`` draws: small, so that collisions are the rule."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from awa_django import Unique
from awa_django.states import JobState
from tests import handlers

KIND = handlers.nothing.handler.kind
QUEUES = ("a", "b")
HOUR = timedelta(hours=1)
WORKERS = ("w/1", "w/2")

UNIQUE = (
    None,
    Unique(),
    Unique(args=True, states="kept"),
    Unique(args=True, states="unfinished_or_failed", on_conflict="raise"),
    Unique(args=("number",), queue=True, period=24 * HOUR),
)
# Those that change the holder of a key, and share keys with those above.
CHANGING = (
    Unique(on_conflict="replace"),
    Unique(args=True, on_conflict="reschedule"),
    Unique(queue=True, states="kept", on_conflict="replace_and_reschedule"),
)
KEYS = tuple(Unique(args=True).key(KIND, queue="a", args={"number": number}, at=None) for number in (0, 1))
# Masks of raw SQL: any, and often such as the engine's own moves collide with.
MASKS = st.sampled_from(
    ("11101001", "11111111", "11001000", "01000000", "00100000", "10011110", "00010110", "11011110")
)
WHEN = st.sampled_from((None, -HOUR, timedelta(0), timedelta(seconds=1), 30 * HOUR))
INDEX = st.integers(min_value=0, max_value=30)
INDEXES = st.lists(INDEX, min_size=1, max_size=4)
QUEUE = st.sampled_from(QUEUES)
NUMBER = st.sampled_from((0, 1))
PRIORITY = st.sampled_from((1, 2, 4))


def item_strategy(unique: Sequence[Unique | None] = UNIQUE) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "number": NUMBER,
            "queue": QUEUE,
            "priority": PRIORITY,
            "unique": st.sampled_from(unique),
            "when": WHEN,
            "max_attempts": st.sampled_from((1, 2, 25)),
            "fixed": st.booleans(),
            "timeout": st.sampled_from((None, 30.0)),
        }
    )


WAYS = st.sampled_from(
    (
        "complete", "complete", "keep_result", "unstorable", "unstorable", "delete", "raise", "terminal",
        "retry_after", "snooze", "cancel", "release", "unknown_kind",
    )
)  # fmt: skip

WHEN_GIVEN = WHEN.filter(lambda when: when is not None)
SPOILT_INSERTS = ({"id": 7}, {"run_lease": 3}, {"priority": 103}, {"max_attempts": 0}, {"state": "running"})
SPOILT_UPDATES = (
    {"created_at": -HOUR}, {"run_lease": 9}, {"unique_key": bytes(16)}, {"kind": "other"}, {"priority": 103},
    {"attempt": 1002}, {"state": None}, {"queue": ""},
)  # fmt: skip


def spoilt(legal: st.SearchStrategy[dict[str, Any]], ways: Sequence[dict[str, Any]]) -> Any:
    """Now and then what must be refused."""
    return st.builds(lambda good, bad: {**good, **bad}, legal, st.sampled_from((*[{}] * 10, *ways)))


INSERTS = spoilt(
    st.fixed_dictionaries(
        {"kind": st.sampled_from((KIND, "sql.job")), "queue": QUEUE},
        optional={
            "state": st.sampled_from(
                ("available", "available", "scheduled", "retryable", "completed", "failed", "cancelled")
            ),
            "priority": st.sampled_from((-98, 102)),
            "run_at": st.sampled_from((-HOUR, timedelta(0), timedelta(seconds=1))),
            "attempt": st.sampled_from((0, 1, 3)),
            "max_attempts": st.sampled_from((1, 3)),
            "key": st.sampled_from(KEYS),
            "finalized_at": st.just(-HOUR),
            "tags": st.just(["sql"]),
        },
    ),
    SPOILT_INSERTS,
)
UPDATES = spoilt(
    st.fixed_dictionaries(
        {},
        optional={
            "state": st.sampled_from([*JobState][:-1]),
            "priority": st.sampled_from((-98, 1)),
            "run_at": WHEN_GIVEN,
            "attempt": st.sampled_from((0, 2)),
            "max_attempts": st.sampled_from((2, 25)),
            "tags": st.just(["updated"]),
            "metadata": st.just({"by": "hand"}),
            "queue": QUEUE,
            "args": st.just({"number": 9}),
            "progress": st.just({"percent": 9}),
            "result": st.just([1]),
            "heartbeat_at": st.just(-HOUR),
            "finalized_at": st.just(-HOUR),
        },
    ),
    SPOILT_UPDATES,
)
