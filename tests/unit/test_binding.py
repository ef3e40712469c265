from __future__ import annotations

import inspect
import re
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_django.binding import Signature
from awa_django.errors import ConfigurationError, InvalidJob

if TYPE_CHECKING:
    from decimal import Decimal

    from awa_django import JobContext


def signature(function: Any, takes_context: bool = False) -> Signature:
    return Signature(function, kind="k", takes_context=takes_context)


def plain(order_id: int, to="", *, on: date | None = None): ...  # type: ignore[no-untyped-def]


def test_arguments_are_bound_by_name_without_defaults() -> None:
    assert signature(plain).bind((1,), {"to": "a"}) == {"order_id": 1, "to": "a"}


@pytest.mark.parametrize(
    ("args", "kwargs", "name"),
    [
        ((), {}, "order_id"),
        ((1, "a", 2), {}, "positional"),
        ((1,), {"order_id": 2}, "order_id"),
        ((1,), {"x": 2}, "x"),
    ],
)
def test_call_that_does_not_fit_is_refused(args: Any, kwargs: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidJob, match=f"'k': .*{name}"):
        signature(plain).bind(args, kwargs)


@given(
    args=st.lists(st.integers(), max_size=4),
    kwargs=st.dictionaries(st.sampled_from(["order_id", "to", "on", "x"]), st.integers(), max_size=4),
)
def test_call_is_bound_as_python_binds_it(args: list[int], kwargs: dict[str, int]) -> None:
    def rest(order_id: int, to: int = 0, *, on: int, **rest: int) -> None: ...

    for function in (plain, rest):
        try:
            expected = inspect.signature(function).bind(*args, **kwargs).arguments
        except TypeError as exc:
            with pytest.raises(InvalidJob, match=re.escape(f"'k': {exc}")):
                signature(function).bind(args, kwargs)
        else:
            expected.update(expected.pop("rest", {}))
            assert signature(function).bind(args, kwargs) == expected


def test_arguments_survive_storage() -> None:
    bound = {"order_id": 1, "on": date(2026, 1, 2)}
    text = signature(plain).encode(bound, max_bytes=1000)
    assert text == '{"order_id":1,"on":"2026-01-02"}'
    assert signature(plain).decode(text) == bound


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"order_id": 1, "x": 2}', "no parameter 'x'"),
        ('{"to": "a"}', "needs the argument 'order_id'"),
        ('{"order_id": "1"}', "'order_id'"),
        ("[]", "must be an object"),
    ],
)
def test_stored_arguments_that_do_not_fit_are_invalid(text: str, why: str) -> None:
    with pytest.raises(InvalidJob, match=why):
        signature(plain).decode(text)


def test_further_keywords_have_the_annotation_of_the_rest() -> None:
    def typed(order_id: int, **rest: date): ...  # type: ignore[no-untyped-def]

    def untyped(**rest): ...  # type: ignore[no-untyped-def]

    bound = signature(typed).bind((1,), {"a": date(2026, 1, 1), "b": date(2026, 1, 2)})
    assert bound == {"order_id": 1, "a": date(2026, 1, 1), "b": date(2026, 1, 2)}
    assert signature(typed).decode(signature(typed).encode(bound, max_bytes=1000)) == bound
    with pytest.raises(InvalidJob, match="argument 'a'"):
        signature(typed).encode({"order_id": 1, "a": 5}, max_bytes=1000)
    assert signature(untyped).decode('{"a": 1}') == {"a": 1}
    assert signature(untyped).accepts("anything")
    assert not signature(plain).accepts("anything")


def test_context_is_no_argument() -> None:
    def handler(context: JobContext, order_id: int): ...  # type: ignore[no-untyped-def]

    taken = signature(handler, takes_context=True)
    assert taken.bind((1,), {}) == {"order_id": 1}
    assert taken.types == {"order_id": int}
    with pytest.raises(InvalidJob):
        taken.bind((), {"context": 1, "order_id": 1})


def test_annotations_that_tell_nothing_are_plain_json() -> None:
    def handler(a, b: Any, c: object): ...  # type: ignore[no-untyped-def]

    assert signature(handler).types == {}


def positional_only(a, /): ...  # type: ignore[no-untyped-def]


def star(*values): ...  # type: ignore[no-untyped-def]


def keyword_context(*, context): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("function", "takes_context", "why"),
    [
        (positional_only, False, "'a' of 'k' is positional-only"),
        (star, False, r"takes \*values"),
        (star, True, "first parameter must be the context"),
        (keyword_context, True, "first parameter must be the context"),
        (lambda: None, True, "first parameter must be the context"),
    ],
)
def test_function_that_is_no_handler_is_refused(function: Any, takes_context: bool, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        signature(function, takes_context)


def test_positional_only_context_is_accepted() -> None:
    def handler(context, /, order_id): ...  # type: ignore[no-untyped-def]

    assert signature(handler, takes_context=True).bind((1,), {}) == {"order_id": 1}


def test_annotation_that_cannot_be_resolved_is_named_at_first_use() -> None:
    def handler(order_id: int, amount: Decimal): ...  # type: ignore[no-untyped-def]

    made = signature(handler)
    with pytest.raises(ConfigurationError, match=r"'amount' of 'k' cannot be resolved.*TYPE_CHECKING"):
        made.encode({"order_id": 1}, max_bytes=100)


def test_defaults_are_encoded_as_far_as_json_holds_them() -> None:
    marker = object()

    def handler(order_id, on: date = date(2026, 1, 2), to: int = None, other=marker): ...  # type: ignore[assignment, no-untyped-def]  # noqa: RUF013

    assert signature(handler).encoded_defaults == {"on": "2026-01-02", "to": None}


def test_result_is_restored_by_the_return_annotation_or_left_plain() -> None:
    def dated() -> date: ...  # type: ignore[empty-body]

    def untold(): ...  # type: ignore[no-untyped-def]

    def unresolved() -> Decimal: ...  # type: ignore[empty-body]

    assert signature(dated).restore_result('"2026-01-02"') == date(2026, 1, 2)
    assert signature(dated).restore_result('{"awa:dropped": "x"}') == {"awa:dropped": "x"}
    assert signature(untold).restore_result("[1]") == [1]
    assert signature(unresolved).restore_result('"1.1"') == "1.1"
