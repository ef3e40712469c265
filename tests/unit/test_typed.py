"""What msgspec leaves open about typed values: subclasses, sets, and what would get lost on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NoReturn, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from awa_django.codec import ArgsEncoder, decode_args, encode_result
from awa_django.errors import InvalidJob
from tests.param_ids import named


def encode(value: object, hint: object) -> str:
    return ArgsEncoder("k", {"x": hint}).encode({"x": value}, max_bytes=10_000)


def decode(text: str, hint: object) -> Any:
    return decode_args(text, {"x": hint}, kind="k")["x"]


@dataclass
class Line:
    sku: str


@dataclass
class Gift(Line):
    message: str = ""


@dataclass(eq=False)
class Event:
    data: Any


class Row(TypedDict):
    sku: str


class Unequal(Line):
    def __eq__(self, other: object) -> NoReturn:
        raise ValueError("ask me not")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("base", "value"),
    [
        (datetime, datetime(2026, 10, 25, 2, 30, 1, 5, ZoneInfo("Europe/Madrid"), fold=1)),
        (date, date(2026, 1, 2)),
        (time, time(1, 2, 3, 4, UTC)),
        (timedelta, timedelta(days=-1, microseconds=7)),
        (Decimal, Decimal("-1.50")),
        (UUID, UUID(int=7)),
        (bytes, b"\x00\xff"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_value_of_a_subclass_is_stored_as_what_it_is_a_kind_of(base: Any, value: Any) -> None:
    """As ``timezone.now()`` is under freezegun, and pendulum's ``now()`` everywhere."""
    made = {
        datetime: lambda sub: sub.combine(value.date(), value.timetz()).replace(fold=value.fold),
        date: lambda sub: sub(value.year, value.month, value.day),
        time: lambda sub: sub.fromisoformat(value.isoformat()),
        timedelta: lambda sub: sub(days=value.days, seconds=value.seconds, microseconds=value.microseconds),
        UUID: lambda sub: sub(int=value.int),
    }.get(base, lambda sub: sub(value))(type(f"Own{base.__name__}", (base,), {}))
    assert type(made) is not base
    assert encode(made, base) == encode(value, base)
    assert encode([made], list[base]) == encode([value], list[base])
    if base is not bytes:
        assert encode_result({"at": made}) == encode_result({"at": value})


def test_value_of_a_subclass_that_says_it_is_another_is_refused() -> None:
    """As the instant that is none, of pandas, says of itself."""

    class Never(datetime):
        def __eq__(self, other: object) -> bool:
            return False

        __hash__ = datetime.__hash__

    with pytest.raises(InvalidJob, match="a Never cannot be stored"):
        encode(Never(2026, 1, 1), datetime)


def test_annotation_may_be_a_class_of_which_every_datetime_is_an_instance() -> None:
    """As ``datetime`` itself is while freezegun holds the clock."""

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Fake(datetime, metaclass=Meta):
        pass

    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert encode(at, Fake) == encode(Fake(2026, 1, 1, tzinfo=UTC), Fake | None) == encode(at, datetime)
    assert decode(encode(at, Fake), Fake) == at

    class Own(datetime):
        pass

    with pytest.raises(InvalidJob, match="Expected `Own`"):
        encode(Own(2026, 1, 1), Own)


@pytest.mark.parametrize(
    ("value", "hint", "why"),
    [
        (Gift("a", "for you"), Line, r" has 'message', for which its annotation has no place"),
        ([Line("a"), Gift("b")], list[Line], r"\[1\] has 'message'"),
        ({"sku": "a", "colour": "red"}, Row, " has 'colour'"),
        ({UUID(int=7): Line("a")}, dict[str, Line], r" has UUID\("),
        (
            Event(date(2026, 1, 2)),
            Event,
            r"\['data'\] is datetime.date\(.*come back as '2026-01-02': annotate",
        ),
        (Event({"ids": [1, UUID(int=7)]}), Event, r"\['data'\]\['ids'\]\[1\] is UUID"),
        ((datetime(2026, 1, 1),), tuple, r"\[0\] is datetime"),
        ({UUID(int=7)}, set[str], r"\[0\] is UUID"),
        (datetime(1883, 1, 1, tzinfo=timezone(timedelta(minutes=19, seconds=32))), datetime, " is datetime"),
    ],
    ids=named,
)
def test_what_would_get_lost_is_refused_by_name(value: object, hint: Any, why: str) -> None:
    with pytest.raises(InvalidJob, match=f"argument 'x' of 'k'{why}"):
        encode(value, hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ({"sku": "a"}, Gift),
        (Unequal("a"), Line),
        (Event(None), Event),
        (Event({"a": [1]}), Event),
        ("2026-01-01T00:00:00Z", datetime),
        ([datetime(2026, 1, 2), datetime(2026, 1, 1)], set[datetime]),
        (Decimal("NaN"), Decimal),
        (1.5, Decimal),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Madrid")), datetime),
        ({1, "a", None}, set[int | str | None]),
    ],
    ids=named,
)
def test_what_only_does_not_compare_equal_is_accepted(value: object, hint: Any) -> None:
    decode(encode(value, hint), hint)


def test_set_is_stored_in_the_same_order_by_every_process() -> None:
    """Or a unique key of it would be another one in each."""
    code = (
        "from awa_django.codec import ArgsEncoder\n"
        "encoder = ArgsEncoder('k', {'x': set[str]})\n"
        "print(encoder.encode({'x': {'a', 'b', 'c', 'd', 'e', 'f'}}, max_bytes=99))"
    )
    asked = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in (1, 2)
    ]
    assert asked == ['{"x":["a","b","c","d","e","f"]}\n'] * 2
