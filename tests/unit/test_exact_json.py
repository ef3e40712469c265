"""JSON with its digits, and masked JSON that was edited."""

from __future__ import annotations

from typing import Any

import pytest

from awa_django.admin.unmask import Masked, unmask
from awa_django.errors import InvalidJob
from awa_django.exact_json import read, write

MASK = "********"


def test_numbers_keep_their_digits() -> None:
    text = '{"a": 1180591620717411303424, "b": 1.10, "c": [1e400, -0.0, true, null], "é\\"": "x\\n"}'
    assert write(read(text)) == text


def test_a_number_is_no_text() -> None:
    assert read('{"a": 1}') != read('{"a": "1"}')
    assert read('{"a": 1}') != read('{"a": true}')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": }', "no JSON: Expecting value, line 1 column 7"),
        ("[1]", "must be a JSON object"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' is there twice"),
        ('{"a": ["\\u0000"]}', "cannot store"),
        ('{"\\ud800": 1}', "cannot store"),
        ('{"a": ' * 101 + "1" + "}" * 101, "deeper than 100"),
        ("[" * 100_000, "deeper than 100"),
    ],
    ids=range(8),
)
def test_what_cannot_be_stored_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidJob, match=problem):
        read(text)


STORED: dict[str, Any] = {
    "key": "s3",
    "who": {"name": "ann", "token": "t1"},
    "list": [{"token": "t2"}, {"token": "t3"}],
    "pair": [{"id": 1, "token": "t4"}, {"id": 2, "token": "t5"}],
    "n": "x s3",
    "names": {"s3": 1, "other": 1},
}
SHOWN: dict[str, Any] = {
    "key": MASK,
    "who": {"name": "ann", "token": MASK},
    "list": [{"token": MASK}, {"token": MASK}],
    "pair": [{"id": 1, "token": MASK}, {"id": 2, "token": MASK}],
    "n": f"x {MASK}",
    "names": {MASK: 1, "other": 1},
}


@pytest.mark.parametrize(
    ("changes", "meant"),
    [
        ({}, {}),
        ({"key": "new"}, {"key": "new"}),
        ({"who": {"name": "bob", "token": MASK}}, {"who": {"name": "bob", "token": "t1"}}),
        ({"pair": [{"id": 1, "token": MASK}]}, {"pair": [{"id": 1, "token": "t4"}]}),
        ({"list": [{"token": "t9"}, {"token": MASK}]}, {"list": [{"token": "t9"}, {"token": "t3"}]}),
        ({"n": "y"}, {"n": "y"}),
        ({"names": {"other": 2}}, {"names": {"other": 2}}),
    ],
)
def test_masks_that_were_left_keep_what_is_stored(changes: Any, meant: Any) -> None:
    assert unmask({**SHOWN, **changes}, SHOWN, STORED) == {**STORED, **meant}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"other": MASK}, "other"),
        ({"who": {"name": MASK, "token": MASK}}, "who.name"),
        ({"list": [{"token": MASK}, {"token": MASK}, {"token": MASK}]}, r"list\[0\]"),
        ({"list": [{"token": MASK}]}, r"list\[0\]"),
        ({"pair": [{"id": 2, "token": MASK}]}, r"pair\[0\]"),
        ({"list": [{"token": MASK, "id": "1"}, {"token": MASK}]}, r"list\[0\]"),
        ({"n": f"y {MASK}"}, "n has"),
        ({"key": {"a": [MASK]}}, "key has"),
        ({"names": {MASK: 1, "other": 2}}, r"names\.\*"),
    ],
)
def test_a_mask_that_hides_nothing_is_refused(changes: Any, where: str) -> None:
    with pytest.raises(Masked, match=where):
        unmask({**SHOWN, **changes}, SHOWN, STORED)
