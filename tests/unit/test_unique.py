from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_django.errors import ConfigurationError, InvalidJob
from awa_django.states import JobState
from awa_django.unique import STATE_GROUPS, Unique, unique_key
from tests.param_ids import named

VECTORS = json.loads(Path(__file__).with_name("unique_key_vectors.json").read_text(encoding="utf-8"))[
    "vectors"
]


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_key_equals_its_golden_vector(vector: Any) -> None:
    key = unique_key(
        vector["kind"], queue=vector["queue"], args=vector["args"], period_bucket=vector["period_bucket"]
    )
    assert key.hex() == vector["key"]


TEXTS = st.text('aZ "\\/\n\x01\x7fü日\U0001f600\u2028', max_size=4)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(args=st.dictionaries(st.sampled_from(["a", "b", "ü", "zz"]), JSON_VALUES))
def test_key_does_not_depend_on_the_order_of_arguments(args: Any) -> None:
    turned = dict(reversed(args.items()))
    assert unique_key("k", args=args) == unique_key("k", args=turned)
    assert unique_key("k", args=args) == unique_key("k", args=json.loads(json.dumps(args)))


def test_parts_that_differ_give_other_keys() -> None:
    keys = {
        unique_key("k"),
        unique_key("k2"),
        unique_key("k", queue="a"),
        unique_key("k", queue="b"),
        unique_key("k", args={}),
        unique_key("k", args={"a": 1}),
        unique_key("k", args={"a": "1"}),
        unique_key("k", args={"a": True}),
        unique_key("k", args={"a": 1.0}),
        unique_key("k", period_bucket=0),
        unique_key("k", period_bucket=1),
    }
    assert len(keys) == 11
    assert {len(key) for key in keys} == {16}


@pytest.mark.parametrize("number", [1e16, 1e-7, -0.0, 1.5e300, float("nan"), float("inf")])
def test_float_that_others_write_differently_is_refused(number: float) -> None:
    with pytest.raises(InvalidJob, match="cannot be part of a unique key"):
        unique_key("k", args={"a": [{"b": number}]})


def test_plain_float_counts() -> None:
    assert unique_key("k", args={"a": 0.1}) != unique_key("k", args={"a": 0.2})


def test_named_arguments_count_alone() -> None:
    unique = Unique(args=("order_id",))
    assert unique.key("k", queue="q", args={"order_id": 1, "to": "a"}, at=None) == unique_key(
        "k", args={"order_id": 1}
    )
    assert Unique().key("k", queue="q", args={"order_id": 1}, at=None) == unique_key("k")
    assert Unique(queue=True).key("k", queue="q", args={}, at=None) == unique_key("k", queue="q")


def test_bucket_counts_periods_since_1970_in_utc() -> None:
    unique = Unique(period=timedelta(hours=1))
    at = datetime(1970, 1, 1, 1, 59, 59, 999_999, tzinfo=UTC)
    assert unique.bucket(at) == 1
    assert unique.bucket(at.astimezone(timezone(timedelta(hours=9)))) == 1
    assert unique.bucket(at + timedelta(microseconds=1)) == 2
    assert unique.bucket(datetime(1969, 12, 31, 23, 30, tzinfo=UTC)) == -1
    assert unique.key("k", queue="q", args={}, at=at) == unique_key("k", period_bucket=1)
    with pytest.raises(ValueError, match="instant"):
        unique.key("k", queue="q", args={}, at=None)


def test_key_may_be_a_function_of_the_arguments() -> None:
    unique = Unique(args=lambda args: args["to"].lower())
    key = unique.key("k", queue="q", args={"to": "Ann@X.org", "body": 1}, at=None)
    assert key == unique_key("k", args="ann@x.org")
    assert key == unique.key("k", queue="q", args={"to": "ann@x.org"}, at=None)
    listed = Unique(args=lambda args: sorted(args["ids"]), queue=True)
    assert listed.key("k", queue="q", args={"ids": [2, 1]}, at=None) == unique_key(
        "k", queue="q", args=[1, 2]
    )


RING: list[object] = []
RING.append(RING)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda args: args["nope"], r"key function of 'k' failed with KeyError\('nope'\)"),
        (lambda args: None, "answered None"),
        (lambda args: {1, 2}, "cannot be part of the unique key"),
        (lambda args: "\ud800", "cannot be part of the unique key"),
        (lambda args: {1: 1, "1": 1}, "cannot be part of the unique key"),
        (lambda args: RING, "cannot be part of the unique key"),
        (lambda args: float("nan"), "unique key"),
        (lambda args: [1e300], "unique key"),
    ],
)
def test_key_function_that_makes_no_key_is_refused(function: Any, says: str) -> None:
    with pytest.raises(InvalidJob, match=says):
        Unique(args=function).key("k", queue="q", args={"a": 1}, at=None)


def test_key_function_cannot_change_the_arguments() -> None:
    args = {"a": 1}
    Unique(args=lambda each: each.pop("a")).key("k", queue="q", args=args, at=None)
    assert args == {"a": 1}


@pytest.mark.parametrize("policy", ["replace", "replace_and_reschedule"])
def test_policy_that_could_replace_nothing_is_refused(policy: Any) -> None:
    with pytest.raises(ConfigurationError, match="nothing to replace"):
        Unique(args=True, on_conflict=policy)
    for args in (False, ("a",), len):
        assert Unique(args=args, on_conflict=policy).replaces_args
    assert not Unique(args=True, on_conflict="reschedule").replaces_args


async def ask(args: Any) -> str:
    return "a"


def test_default_mask_holds_while_unfinished() -> None:
    assert Unique().mask == "11101001"
    assert Unique(states="kept").mask == "11111111"
    assert {Unique(states=group).mask[1] for group in STATE_GROUPS} == {"1"}


def test_set_that_holds_all_unfinished_states_is_accepted() -> None:
    states = STATE_GROUPS["unfinished"] | {JobState.CANCELLED}
    assert Unique(states=states).mask == "11101011"
    assert Unique(states=set(STATE_GROUPS["unfinished"])) == Unique(states=STATE_GROUPS["unfinished"])


@pytest.mark.parametrize(
    "states", [{"available", "running"}, {"scheduled", "available"}, set(), {"completed"}]
)
@pytest.mark.fault("U34", injected="masks that leave out a state into which the engine moves a job")
def test_mask_that_the_engine_would_collide_with_is_refused(states: Any) -> None:
    with pytest.raises(ConfigurationError, match="use one of unfinished, "):
        Unique(states=states)


@pytest.mark.parametrize(
    "options",
    [
        {"states": "until_started"},
        {"states": 5},
        {"states": {"nope"}},
        {"args": "order_id"},
        {"args": ()},
        {"args": (1,)},
        {"args": None},
        {"args": dict},
        {"args": ask},
        {"queue": "mail"},
        {"period": 0},
        {"period": timedelta(milliseconds=500)},
        {"period": "1h"},
        {"on_conflict": "keep"},
    ],
    ids=named,
)
def test_wrong_declaration_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"Unique.{next(iter(options))}"):
        Unique(**options)
