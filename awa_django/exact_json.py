"""JSON whose numbers keep their digits: read, compared and written without rounding one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from awa_django.codec import DEEPEST
from awa_django.errors import InvalidJob


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is written."""

    digits: str


Exact: TypeAlias = Number | str | bool | list["Exact"] | dict[str, "Exact"] | None
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def read(text: str, *, checks: bool = True) -> dict[str, Exact]:
    """The object that the text is.

    Raises: InvalidJob saying what is wrong and where. Without ``checks``, for what the database holds
    already, only what cannot be read at all is wrong.
    """
    try:
        value = json.loads(
            text,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse_constant,
            object_pairs_hook=_refuse_twins if checks else dict,
        )
    except json.JSONDecodeError as exc:
        raise InvalidJob(f"this is no JSON: {exc.msg}, line {exc.lineno} column {exc.colno}") from exc
    except RecursionError as exc:
        raise InvalidJob(f"this is nested deeper than {DEEPEST} levels") from exc
    if not isinstance(value, dict):
        raise InvalidJob("the arguments must be a JSON object: {...}")
    if checks:
        _check(value, "the arguments", DEEPEST)
    return value


def write(value: Exact) -> str:
    """The value as JSON text on one line, each number with its digits."""
    if isinstance(value, Number):
        return value.digits
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quote(key)}: {write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(write, value)) + "]"
    return _quote(value)


def _quote(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJob(f"{name} is no JSON number")


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise InvalidJob(f"the name {twin!r} is there twice")
    return found


def _check(value: Exact, where: str, depth: int) -> None:
    if not depth:
        raise InvalidJob(f"{where} is nested deeper than {DEEPEST} levels")
    if isinstance(value, str) and _UNSTORABLE.search(value):
        raise InvalidJob(f"{where} holds a character that PostgreSQL cannot store")
    if isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check(key, f"{where}: the name {key!r}", depth)
            _check(item, f"{where}[{key!r}]", depth - 1)
