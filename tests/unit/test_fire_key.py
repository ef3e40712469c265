"""FireKey: what a leader makes of a schedule's row is the key that an enqueue would take."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from awa_django import Unique
from awa_django.errors import ConfigurationError, InvalidJob
from awa_django.fire_key import FireKey

AT = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
ARGS: dict[str, Any] = {"shop": "n\0rth", "count": 0.25, "more": {"b": [1], "a": None}}


@pytest.mark.parametrize("period", [None, timedelta(hours=1), timedelta(seconds=1.5), timedelta(days=7)])
@pytest.mark.parametrize("args", [False, True, ("shop",), lambda args: args["shop"] + "!"])
@pytest.mark.parametrize("queue", [False, True])
def test_key_of_a_fire_is_that_of_a_job_of_its_instant(args: Any, queue: bool, period: Any) -> None:
    unique = Unique(args=args, queue=queue, period=period, states="kept")
    stored = json.dumps(FireKey.of(unique, "a.kind", queue="mail", args=ARGS).to_json())
    key = FireKey.from_json(stored)
    assert key.mask == unique.mask
    for at in (AT, AT + timedelta(minutes=45), AT - timedelta(days=30_000)):
        assert key.at(at) == unique.key("a.kind", queue="mail", args=ARGS, at=at)


def test_key_without_a_period_hides_the_arguments() -> None:
    key = FireKey.of(Unique(args=True), "a.kind", queue="mail", args={"token": "s3cret"})
    assert b"s3cret" not in key.base


def test_arguments_that_cannot_be_part_of_a_key_are_refused() -> None:
    with pytest.raises(InvalidJob, match="1e-07"):
        FireKey.of(Unique(args=True), "a.kind", queue="mail", args={"n": 1e-7})


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "7",
        "{}",
        '{"states": "11111000"}',
        '{"states": "1", "base": ""}',
        '{"states": "1111100x", "base": ""}',
        '{"states": 11111000, "base": ""}',
        '{"states": "11111000", "base": "*"}',
        '{"states": "11111000", "base": null}',
        '{"states": "11111000", "base": "AA==", "period_us": 0}',
        '{"states": "11111000", "base": "AA==", "period_us": "x"}',
        '{"states": "11111000", "base": "AA==", "period_us": 1e300}',
    ],
)
def test_what_somebody_else_wrote_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="awa:unique"):
        FireKey.from_json(text)
