"""Typed arguments and results to JSON and back.

What a caller passes is refused when it would not come back as it went in (InvalidJob, naming the
argument). What a handler returns or raises is cleaned instead, so that writing it never fails.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin

import msgspec

from awa_django.errors import InvalidJob
from awa_django.typed import check_restored, encode_subclass, is_model_instance, restore, to_builtins

JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None

# What every reader of the rows can hold: a signed 64-bit integer, as in the database itself.
SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
# Deeper JSON breaks readers (psycopg near 1,000, jsonb at the server's stack limit).
DEEPEST = 100
# NUL has no place in text or jsonb, and a lone surrogate none in UTF-8.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
TRUNCATED = "\N{HORIZONTAL ELLIPSIS} [truncated]"
RESULT_LIMIT = 1024 * 1024
_SCALARS: frozenset[type] = frozenset({str, int, float, bool, NoneType})
# Seven times as quick as json.loads, and the same for all that jsonb gives out.
_decoder = msgspec.json.Decoder()


class ArgsEncoder:
    """Encodes the arguments of one kind as the text of a JSON object.

    ``types`` has the annotation of each parameter, ``rest`` that of any other name. An argument may be
    anything that msgspec encodes and restores as its type; with ``Any``, only what JSON has (a tuple
    becomes a list).
    """

    def __init__(self, kind: str, types: Mapping[str, Any], rest: Any = Any) -> None:
        self._kind = kind
        self._types = types
        self._rest = rest
        self._exact = {name: _exact_types(hint) for name, hint in types.items()}

    def encode(self, arguments: Mapping[str, object], *, max_bytes: int) -> str:
        """The arguments as JSON text.

        Raises: InvalidJob naming the argument, or the size when the text is longer than ``max_bytes``.
        """
        encoded = self._encode_simple(arguments)
        if encoded is None or len(encoded) > max_bytes:
            encoded = self._encode_any(arguments, max_bytes)
        return encoded.decode()

    def _encode_simple(self, arguments: Mapping[str, object]) -> bytes | None:
        """What ``_encode_any`` answers, a fifth of its price; None when it takes a closer look.

        For scalars that are JSON as they stand and whose annotation says just that.
        """
        exact = self._exact
        for name, value in arguments.items():
            this = type(value)
            if this not in exact.get(name, ()):
                return None
            if this is int:
                if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:  # type: ignore[operator]
                    return None
            elif this is float and not math.isfinite(value):  # type: ignore[arg-type]
                return None
        try:
            encoded = msgspec.json.encode(arguments)
        except (TypeError, ValueError):  # a Mapping that is no dict; a lone surrogate
            return None
        return None if b"\\u0000" in encoded else encoded

    def _encode_any(self, arguments: Mapping[str, object], max_bytes: int) -> bytes:
        plain = {name: self._encode_one(name, value) for name, value in arguments.items()}
        encoded = msgspec.json.encode(plain)
        if len(encoded) > max_bytes:
            largest = max(plain, key=lambda name: len(msgspec.json.encode(plain[name])))
            raise InvalidJob(
                f"the arguments of {self._kind!r} take {len(encoded)} bytes, "
                f"AWA['MAX_ARGS_BYTES'] allows {max_bytes} "
                f"(the largest is {largest!r}): store the data elsewhere and pass its key"
            )
        return encoded

    def _encode_one(self, name: str, value: object) -> JSON:
        where = f"argument {name!r} of {self._kind!r}"
        if name not in self._types:
            _plain(name, f"the name {name!r} of an argument of {self._kind!r}", DEEPEST)
        hint = self._types.get(name, self._rest)
        try:
            if _is_plain(hint):
                plain = _plain(value, where, DEEPEST)
                msgspec.convert(plain, hint)
            else:
                plain = _plain(to_builtins(value), where, DEEPEST)
                check_restored(value, restore(plain, hint), where)
        except InvalidJob:
            raise
        except (TypeError, ValueError, RecursionError) as exc:  # msgspec.ValidationError is a ValueError
            raise InvalidJob(f"{where} does not fit its annotation: {exc}") from exc
        return plain


def decode_args(text: str | bytes, types: Mapping[str, Any], *, kind: str = "") -> dict[str, object]:
    """The arguments in the JSON object ``text``, each restored as its type; without one, plain JSON.

    Raises: InvalidJob naming the argument that does not fit its type, or when the text is no object.
    """
    try:
        arguments = _decoder.decode(text)
    except (ValueError, RecursionError) as exc:  # beyond 4,300 digits, or nested too deep
        raise InvalidJob(f"the arguments of {kind!r} cannot be read: {exc}") from exc
    if not isinstance(arguments, dict):
        raise InvalidJob(f"the arguments of {kind!r} must be an object, not {type(arguments).__name__}")
    for name, value in arguments.items():
        if name in types and type(value) is not types[name]:
            arguments[name] = _decode_one(name, value, types[name], kind)
    return arguments


def plain_json(value: object, name: str) -> JSON:
    """``value`` as it will be read back from jsonb. Raises: InvalidJob naming ``name`` and the path in it."""
    return _plain(value, name, DEEPEST)


def encode_result(value: object, *, limit: int = RESULT_LIMIT) -> str:
    """What a handler returned, as JSON text of at most ``limit`` bytes; never raises.

    What JSON cannot hold is replaced by something that says so; see ``clean_json``.
    """
    try:
        encoded = msgspec.json.encode(clean_json(value))
        if len(encoded) > limit:
            encoded = _dropped(f"the result took {len(encoded)} bytes, {limit} are kept")
    except Exception as exc:  # noqa: BLE001  (a finish must not fail on any value)
        encoded = _dropped(f"the result could not be encoded: {type(exc).__name__}")
    return encoded.decode()


def clean_text(text: str, limit: int) -> str:
    """``text`` as PostgreSQL can store it, in at most ``limit`` characters; never raises.

    NUL and lone surrogates become U+FFFD; what is cut off is marked.
    """
    if len(text) > limit:
        text = text[: max(limit - len(TRUNCATED), 0)] + TRUNCATED[:limit]
    return _UNSTORABLE.sub(_REPLACEMENT, text)


def clean_json(value: object) -> JSON:
    """``value`` as JSON that PostgreSQL can store and every reader can read; never raises.

    NaN and infinities become null, integers beyond 64 bits text, unknown objects their ``repr``,
    and what lies deeper than 100 levels a mark.
    """
    try:
        return _clean(value, DEEPEST)
    except Exception as exc:  # noqa: BLE001  (a broken __iter__ or __len__ of the handler's object)
        return f"<{type(value).__name__} that cannot be encoded: {type(exc).__name__}>"


def _dropped(why: str) -> bytes:
    return msgspec.json.encode({"awa:dropped": why})


def _decode_one(name: str, value: object, hint: Any, kind: str) -> object:
    try:
        return restore(value, hint)
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidJob(f"argument {name!r} of {kind!r} does not fit its annotation: {exc}") from exc


def _is_plain(hint: object) -> bool:
    """Whether all that fits the annotation is JSON already (``dict[str, Any]``, ``str | None``).

    Such a value is not converted: what msgspec would make of a datetime in it is text, and nothing
    in the annotation would make it a datetime again.
    """
    try:
        return _is_plain_hint(hint)
    except TypeError:  # unhashable metadata in an Annotated
        return False


@cache
def _is_plain_hint(hint: object) -> bool:
    if get_origin(hint) in (dict, list, Union, UnionType):
        return all(_is_plain_hint(part) for part in get_args(hint))
    return hint in (Any, object, str, int, float, bool, None, NoneType, dict, list)


def _exact_types(hint: object) -> frozenset[type]:
    """The types whose every value fits the annotation and is JSON as it stands, but for its range."""
    if hint in (Any, object):
        return _SCALARS
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    exact = frozenset(scalar for scalar in _SCALARS if any(part is scalar for part in parts))
    # Of a union with anything else, msgspec must say whether it can tell the parts apart.
    return exact if len(exact) == len(parts) else frozenset()


def _plain(value: object, where: str, depth: int) -> JSON:
    # The order is that of how often each is met: this runs for every value of every enqueue.
    if isinstance(value, str):
        if _UNSTORABLE.search(value):
            what = "a NUL character" if "\x00" in value else "a lone surrogate"
            raise InvalidJob(f"{where} holds {what}, which PostgreSQL cannot store")
        return str.__str__(value)
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            raise InvalidJob(f"{where} is an integer beyond 64 bits: pass it as text")
        return int.__int__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidJob(f"{where} is {value!r}, which JSON does not have")
        return float.__float__(value)
    return _plain_container(value, where, depth)


def _plain_container(value: object, where: str, depth: int) -> JSON:
    if not depth:
        raise InvalidJob(f"{where} is nested deeper than {DEEPEST} levels (or holds itself)")
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{index}]", depth - 1) for index, item in enumerate(value)]
    if isinstance(value, dict) and not hasattr(value, "getlist"):
        plain: dict[str, JSON] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidJob(f"{where} has the key {key!r}: JSON has only strings as keys")
            _plain(key, f"{where}: the key {key!r}", depth)
            plain[str.__str__(key)] = _plain(item, f"{where}[{key!r}]", depth - 1)
        return plain
    hint = "annotate the parameter with its type, or pass something simpler"
    if hasattr(value, "getlist"):  # Django's MultiValueDict, whose items are the last values only
        hint = "pass .dict() of it, with the last value of each key, or dict(it.lists()), with all of them"
    elif type(value).__name__ == "__proxy__":  # gettext_lazy and the like
        hint = "pass the str() of it"
    elif is_model_instance(value):
        hint = "pass its primary key"
    raise InvalidJob(f"{where} is a {type(value).__name__}, which JSON does not have: {hint}")


def _clean(value: object, depth: int) -> JSON:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int.__int__(value)
        return number if SMALLEST_INTEGER <= number <= LARGEST_INTEGER else _clean_integer(number)
    if isinstance(value, float):
        return float.__float__(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return _UNSTORABLE.sub(_REPLACEMENT, value)
    if not depth:
        return TRUNCATED
    if isinstance(value, Mapping):
        return {clean_text(_key(key), 1000): _clean(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item, depth - 1) for item in value]
    try:
        built = msgspec.to_builtins(value, enc_hook=_encode_or_describe)
    except Exception:  # noqa: BLE001  (an attribute or __repr__ of the handler's own that raises)
        return f"<{type(value).__name__}>"
    return _clean(_describe(value) if built is value else built, depth - 1)


def _key(key: object) -> str:
    return str.__str__(key) if isinstance(key, str) else str(_clean(key, 1))


def _clean_integer(number: int) -> str:
    return str(number) if number.bit_length() < 4096 else f"<integer of {number.bit_length()} bits>"


def _encode_or_describe(value: object) -> object:
    try:
        return encode_subclass(value)
    except Exception:  # noqa: BLE001
        return _describe(value)


def _describe(value: object) -> str:
    return clean_text(repr(value), 1000)
