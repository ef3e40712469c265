from __future__ import annotations

import json

import pytest
from django.test import override_settings

from awa_django.redaction import MASK, mask_text, pretty_json


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"a": [], "b": {}, "c": [1, [2, {"d": None}], "x"]},
        {"text": 'quote " backslash \\ brace } colon : comma ,', "é": "ñ\n\t"},
        [True, False, None, -1.5e10],
    ],
)
def test_pretty_json_says_the_same(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert json.loads(pretty_json(text)) == value
    assert pretty_json(text) == json.dumps(value, ensure_ascii=False, indent=2)


def test_numbers_stay_as_they_are() -> None:
    shown = pretty_json('{"n": 1.50, "big": ' + "9" * 5000 + ', "e": 1e400}')
    assert '"n": 1.50' in shown
    assert "9" * 5000 in shown
    assert "1e400" in shown


def test_depth_is_no_limit() -> None:
    assert pretty_json("[" * 50_000 + "]" * 50_000, limit=10**7).count("[") == 50_000


def test_secrets_are_masked_whatever_their_value() -> None:
    value = {
        "Password": "hunter2",
        "nested": [{"my_API_KEY": {"deep": ["s3cret", "}"]}, "after": 1}],
        "pass\u0077d": 5,
        "token": None,
        "plain": "password",
    }
    shown = pretty_json(json.dumps(value).replace("passwd", "pass\\u0077d"))
    assert json.loads(shown) == {
        "Password": MASK,
        "nested": [{"my_API_KEY": MASK, "after": 1}],
        "passwd": MASK,
        "token": MASK,
        "plain": "password",
    }


def test_a_secret_that_is_cut_off_is_not_shown() -> None:
    text = json.dumps({"a": 1, "token": "first second {third}"})
    for end in range(text.index("first"), len(text)):
        shown = pretty_json(text[:end], length=len(text))
        assert "first" not in shown
        assert "second" not in shown
        assert "third" not in shown


def test_long_values_are_cut_and_say_so() -> None:
    shown = pretty_json(json.dumps(["x" * 50] * 100), limit=200)
    assert len(shown) < 260
    assert shown.endswith("cut here: 5,400 characters in all")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("login failed: password=hunter2, retry", "hunter2"),
        ("{'auth_token': 'hunter2', 'x': 1}", "hunter2"),
        ('{"secret": "hun\\"ter2"}', "ter2"),
        ("Authorization: Bearer hunter2", "hunter2"),
        ("postgres://app:hunter2@db/app refused", "hunter2"),
    ],
)
def test_free_text_is_masked(text: str, secret: str) -> None:
    masked = mask_text(text)
    assert secret not in masked
    assert MASK in masked


def test_other_text_is_left_alone() -> None:
    text = "Traceback: the token was fine at https://example.org/a:b"
    assert mask_text(text) == text


@override_settings(AWA={"REDACT": ["IBAN"]})
def test_what_is_secret_is_a_setting() -> None:
    assert (
        pretty_json('{"iban_to": "DE1", "token": "t"}') == f'{{\n  "iban_to": "{MASK}",\n  "token": "t"\n}}'
    )


@override_settings(AWA={"REDACT": []})
def test_nothing_is_masked_when_the_setting_is_empty() -> None:
    assert "hunter2" in pretty_json('{"password": "hunter2"}')
    assert mask_text("password=hunter2") == "password=hunter2"
