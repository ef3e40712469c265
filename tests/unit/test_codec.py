from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest
from django.contrib.auth.models import User
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st

from awa_django.codec import (
    ArgsEncoder,
    clean_json,
    clean_text,
    decode_args,
    encode_result,
    plain_json,
)
from awa_django.errors import InvalidJob
from tests.param_ids import named


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@dataclass
class Line:
    sku: str
    count: int
    at: datetime | None = None


def encode(value: object, hint: object = Any) -> str:
    return ArgsEncoder("k", {"x": hint}).encode({"x": value}, max_bytes=10_000)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, int),
        (True, bool),
        (2**63 - 1, int),
        (-(2**63), int),
        (1.5, float),
        ("ü\u2028\x01", str),
        (b"\x00\xff", bytes),
        (None, int | None),
        (datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), datetime),
        (datetime(2026, 1, 2), datetime),
        (date(2026, 1, 2), date),
        (time(1, 2, 3), time),
        (timedelta(days=-1, microseconds=7), timedelta),
        (Decimal("1.10"), Decimal),
        (UUID(int=7), UUID),
        (Colour.RED, Colour),
        (Level.HIGH, Level),
        ([1, 2], list[int]),
        ((1, "a"), tuple[int, str]),
        ({1, 2}, set[int]),
        ({"a": Decimal(1)}, dict[str, Decimal]),
        ({"a": [1, None, {}]}, dict[str, Any]),
        (None, dict[str, object] | None),
        (Decimal(1), Decimal | int | None),
        (3, Annotated[int, msgspec.Meta(gt=1)]),
        (Line("a", 1, datetime(2026, 1, 1, tzinfo=UTC)), Line),
        ([Line("a", 1)], list[Line]),
    ],
    ids=repr,
)
def test_typed_argument_comes_back_as_it_went_in(value: Any, hint: Any) -> None:
    restored = decode_args(encode(value, hint), {"x": hint}, kind="k")["x"]
    assert restored == value
    assert type(restored) is type(value)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('aZ"\\\n\x7fü日\U0001f600', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=10,
)


@given(value=PLAIN)
def test_untyped_json_comes_back_as_it_went_in(value: Any) -> None:
    text = encode(value)
    assert decode_args(text, {}, kind="k") == {"x": value}
    assert json.loads(text) == {"x": value}
    assert plain_json(value, "x") == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("a\x00b", "NUL"),
        ("\ud800", "lone surrogate"),
        ({"a": ["\udfff"]}, r"\['a'\]\[0\] holds a lone surrogate"),
        ({"a\x00": 1}, "the key 'a\\\\x00' holds a NUL"),
        (float("nan"), "nan, which JSON does not have"),
        ([float("-inf")], r"\[0\] is -inf"),
        (2**63, "beyond 64 bits"),
        ([-(2**63) - 1], "beyond 64 bits"),
        ({1: "a"}, "only strings as keys"),
        ({(1, 2): "a"}, "only strings as keys"),
        (nested(101), "nested deeper than 100"),
        (datetime(2026, 1, 1), "is a datetime, which JSON does not have: annotate"),
        (Decimal(1), "is a Decimal"),
        ({1, 2}, "is a set"),
        (b"a", "is a bytes"),
        (User(pk=1), "is a User, which JSON does not have: pass its primary key"),
        (QueryDict("a=1&a=2"), r"is a QueryDict, .*\.dict\(\) of it, with the last value"),
        ({"form": MultiValueDict({"a": [1, 2]})}, r"\['form'\] is a MultiValueDict"),
        (gettext_lazy("Save"), r"is a __proxy__, .*: pass the str\(\) of it"),
        pytest.param(object(), "is a object", id="object"),
    ],
    ids=lambda value: named(value)[:30],
)
@pytest.mark.fault("U35", injected="arguments with NUL, surrogates, NaN, integers beyond 64 bits, ...")
def test_untyped_argument_is_refused_by_name(value: Any, why: str) -> None:
    with pytest.raises(InvalidJob, match=f"argument 'x' of 'k'.*{why}"):
        encode(value)


@pytest.mark.parametrize(
    ("value", "hint", "why"),
    [
        ("1", int, "Expected `int`, got `str`"),
        (True, int, "Expected `int`, got `bool`"),
        (None, int, "Expected `int`, got `null`"),
        ("x", datetime, "RFC3339"),
        ([1, "a"], list[int], r"\$\[1\]"),
        (Line("a", "b"), Line, r"\$.count"),  # type: ignore[arg-type]
        (Line("a\x00", 1), Line, "NUL"),
        ({1: "a"}, dict[int, str], "only strings as keys"),
        ({"at": datetime(2026, 1, 1)}, dict[str, Any], r"\['at'\] is a datetime, which JSON does not have"),
        ([Decimal(1)], list, r"\[0\] is a Decimal"),
        ({"at": [date(2026, 1, 1)]}, dict[str, list[object]] | None, "is a date"),
        (UUID(int=7), str, "is a UUID"),
        (range(3), range, "a range cannot be stored"),
        (User(pk=1), User, "a User cannot be stored: pass its primary key"),
        (float("nan"), float, "nan"),
        (1, int | datetime | str | date, "more than one str-like"),
    ],
    ids=lambda value: named(value)[:30],
)
def test_typed_argument_that_does_not_fit_is_refused_by_name(value: Any, hint: Any, why: str) -> None:
    with pytest.raises(InvalidJob, match=f"argument 'x' of 'k'.*{why}"):
        encode(value, hint)


@pytest.mark.parametrize("depth", [101, 500, 200_000])
def test_deep_value_is_refused_or_cut(depth: int) -> None:
    value = nested(depth)
    for hint in (None, list):
        with pytest.raises(InvalidJob, match="argument 'x' of 'k'"):
            encode(value, hint)
    assert "truncated" in encode_result(value)


def test_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidJob, match="holds itself"):
        encode(value)


def test_subclasses_of_plain_types_are_what_they_are_a_kind_of() -> None:
    class Number(int): ...

    class Share(float): ...

    assert encode(mark_safe("<b>"), str) == encode("<b>") == encode(mark_safe("<b>"))
    assert encode(Number(3), int) == encode(3) == encode(Number(3))
    assert encode(Share(0.5), float) == encode(Share(0.5)) == '{"x":0.5}'


def test_too_large_payload_names_the_largest_argument() -> None:
    with pytest.raises(InvalidJob, match=r"2\d\d bytes.*MAX_ARGS_BYTES.*100.*largest is 'body'"):
        ArgsEncoder("k", {"id": int, "body": str}).encode({"id": 1, "body": "ü" * 100}, max_bytes=100)
    assert ArgsEncoder("k", {}).encode({}, max_bytes=2) == "{}"


@pytest.mark.parametrize("name", ["a\x00", "\ud800"])
def test_name_of_an_argument_must_be_storable_too(name: str) -> None:
    with pytest.raises(InvalidJob, match=r"the name .* of an argument of 'k'"):
        ArgsEncoder("k", {}).encode({name: 1}, max_bytes=100)


HINTS: list[Any] = [
    str,
    int,
    float,
    bool,
    type(None),
    Any,
    object,
    str | None,
    int | float,
    datetime | str,
    Level,
    Line,
    int | datetime | date,
]
HINTS += [Annotated[int, msgspec.Meta(gt=0)], Annotated[str, msgspec.Meta(max_length=3)] | None, list[int]]


@given(
    hints=st.lists(st.sampled_from(HINTS), min_size=1, max_size=3),
    values=st.lists(
        st.none()
        | st.booleans()
        | st.integers(-(2**65), 2**65)
        | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, Level.HIGH, Colour.RED])
        | st.sampled_from(["\x00", "\\u0000", "\ud800", "\\", mark_safe("a"), b"a", [1], {"a": "\x00"}])
        | st.floats()
        | st.text(),
        min_size=3,
        max_size=3,
    ),
)
def test_short_way_through_simple_arguments_answers_as_the_long_one(hints: Any, values: Any) -> None:
    encoder = ArgsEncoder("k", {f"a{place}": hint for place, hint in enumerate(hints)})
    arguments = {f"a{place}": value for place, value in enumerate(values[: len(hints)])}
    short = encoder._encode_simple(arguments)
    try:
        long = encoder._encode_any(arguments, 10_000)
    except InvalidJob:
        assert short is None
    else:
        assert short in (None, long)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, int),
        ("\\", str),
        (None, str | None),
        (1.5, float),
        (True, Any),
        ("", object),
        (2**63 - 1, int | None),
    ],
)
def test_scalars_of_their_annotation_go_the_short_way(value: object, hint: object) -> None:
    assert ArgsEncoder("k", {"x": hint})._encode_simple({"x": value}) is not None


@pytest.mark.parametrize(
    "number",
    [
        str(2**63),
        str(-(2**64)),
        "1" + "0" * 400,
        "0.1",
        "0." + "123456789" * 30,
        "0.00000000000000000001",
        "-0",
    ],
)
def test_number_of_any_size_is_read_as_python_has_it(number: str) -> None:
    """jsonb keeps numerics: raw SQL may store what no 64 bits hold."""
    [read] = decode_args(f'{{"x": {number}}}', {}, kind="k").values()
    expected = json.loads(number)
    assert (read, type(read)) == (expected, type(expected))


@pytest.mark.parametrize("text", ["[]", "1", "{", '{"x": ' + "1" * 5000 + "}", "[" * 100_000])
def test_stored_arguments_that_cannot_be_read_are_invalid(text: str) -> None:
    with pytest.raises(InvalidJob, match="the arguments of 'k'"):
        decode_args(text, {}, kind="k")


def test_stored_argument_of_another_type_is_invalid_by_name() -> None:
    with pytest.raises(InvalidJob, match="argument 'x' of 'k' does not fit"):
        decode_args('{"x": "a"}', {"x": int}, kind="k")


def test_text_is_cleaned_and_cut() -> None:
    assert clean_text("a\x00b\ud800c", 100) == "a\ufffdb\ufffdc"
    cut = clean_text("a" * 1000, 50)
    assert len(cut) == 50
    assert cut.endswith("[truncated]")
    assert len(clean_text("a" * 1000, 3)) == 3
    assert clean_text("", 0) == ""


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class BrokenList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise RuntimeError("no iteration")


class BrokenDict(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError("no items")


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [float("inf")],
        2**70,
        10**5000,
        "\ud800\x00",
        {"\x00": {1: {None: {(1, 2): Broken()}}}},
        {Broken(): 1},
        Broken(),
        BrokenList([1]),
        BrokenDict(a=1),
        object(),
        Broken,
        {1, "a"},
        range(3),
        b"\x00\xff",
        Line("a\x00", 2**70),
        Colour.RED,
        Decimal("NaN"),
        datetime(2026, 1, 1, tzinfo=UTC),
        lambda: None,
        User(pk=1),
        [Broken()] * 3,
        (x for x in [1]),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.fault("F51", injected="results that are sets, bytes, NaN, huge, recursive, broken, ...")
def test_any_result_becomes_json_that_postgresql_can_store(value: Any) -> None:
    text = encode_result(value)
    assert "\x00" not in text
    assert "\\u0000" not in text
    text.encode()
    assert ArgsEncoder("k", {}).encode(
        {"x": json.loads(text)}, max_bytes=10**7
    )  # within the domain of enqueue


@given(value=PLAIN)
def test_plain_result_is_kept_as_it_is(value: Any) -> None:
    assert json.loads(encode_result(value)) == value
    assert clean_json(value) == value


def test_typed_result_is_encoded_as_an_argument_is() -> None:
    assert json.loads(encode_result(Line("a", 1))) == {"sku": "a", "count": 1, "at": None}
    assert json.loads(encode_result({"at": date(2026, 1, 2), "n": (1, 2)})) == {
        "at": "2026-01-02",
        "n": [1, 2],
    }


def test_result_over_its_limit_is_dropped_and_says_so() -> None:
    assert json.loads(encode_result("a" * 100, limit=50)) == {
        "awa:dropped": "the result took 102 bytes, 50 are kept"
    }
