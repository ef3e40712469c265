from __future__ import annotations

import json

import pytest
from django.test import override_settings

from awa_django.redaction import MASK, find_secrets, mask_text, pretty_json


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


CARD = "4000123412341234"


def test_declared_names_are_masked_as_keys_and_as_values() -> None:
    args = json.dumps({"card": {"no": CARD, "pins": [7117, -3.25]}, "password": 'a"b\\c', "to": "ann"})
    secrets = find_secrets(args, ["card"])
    assert json.loads(pretty_json(args, secrets=secrets)) == {"card": MASK, "password": MASK, "to": "ann"}
    other = json.dumps(
        {"note": f"paid by {CARD}!", "n": 7117, "more": 71170, "deep": [{"card": 1}], "a": -3.25}
    )
    assert json.loads(pretty_json(other, secrets=secrets)) == {
        "note": f"paid by {MASK}!", "n": MASK, "more": 71170, "deep": [{"card": MASK}], "a": MASK,
    }  # fmt: skip
    told = mask_text(f'no {CARD}, {CARD}9, 7117 or 71170; card=x cards=3 postcard=4; a"b\\c', secrets)
    assert told == f"no {MASK}, {MASK}9, {MASK} or 71170; card={MASK} cards=3 postcard=4; {MASK}"


def test_a_secret_in_a_text_within_json_is_masked() -> None:
    texts = ["at postgres://shop:hunter2@db/shop", 'token: "hunter2", \\ and more', "password='hunter2'"]
    shown = pretty_json(json.dumps({"message": texts, "time": "12:00", "a=b": "x=y"}))
    assert "hunter2" not in shown
    assert "and more" in json.loads(shown)["message"][1]
    assert json.loads(shown)["time"] == "12:00"
    assert json.loads(shown)["a=b"] == "x=y"
    assert "hunter2" not in pretty_json(json.dumps(texts[0])[:28])


def test_a_value_as_json_writes_it_is_masked_too() -> None:
    value = 'tab\t and "quote"'
    secrets = find_secrets(json.dumps({"token": value}))
    assert mask_text(f"sent {json.dumps(value)}", secrets) == f'sent "{MASK}"'
    assert value not in json.loads(pretty_json(json.dumps([value]), secrets=secrets))[0]


@pytest.mark.parametrize("value", ["", "a", "abc", 123, True, None, [], {}])
def test_what_is_too_short_to_be_told_from_other_text_is_not_sought(value: object) -> None:
    secrets = find_secrets(json.dumps({"card": value}), ["card"])
    text = "a 123 true null abc {} []"
    assert mask_text(text, secrets) == text
    assert pretty_json("[true, null, 123, {}, []]", secrets=secrets) == pretty_json(
        "[true, null, 123, {}, []]"
    )


@pytest.mark.parametrize("cut", range(1, 60))
def test_arguments_that_are_cut_anywhere_still_tell_their_secrets(cut: int) -> None:
    text = json.dumps({"card": "\\u00e9-first-secret", "x": {"token": [12345, "second"]}})
    secrets = find_secrets(text[:cut], ["card"])
    shown = pretty_json(text[:cut], length=len(text), secrets=secrets)
    assert "first" not in shown
    assert "second" not in shown


def test_very_many_secret_values_are_masked_fast() -> None:
    args = json.dumps({"card": [f"value-{number}" for number in range(7_000)]})
    assert find_secrets(args, ["card"]).values is not None
