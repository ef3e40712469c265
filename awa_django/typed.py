"""Values of annotated types, as msgspec writes and restores them: what it leaves open is settled here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from awa_django.errors import InvalidJob

# What msgspec writes as text, and how one of a subclass is one of it: pendulum's datetime, or freezegun's.
# In a table, where freezegun does not put its own classes in the place of these.
_AS_TEXT: dict[type, Callable[[Any, Any], object]] = {
    datetime: lambda base, value: base.combine(base.date(value), base.timetz(value)),
    date: lambda base, value: base(value.year, value.month, value.day),
    time: lambda base, value: base(
        value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold
    ),
    timedelta: lambda base, value: base(value.days, value.seconds, value.microseconds),
    Decimal: lambda base, value: base(value),
    UUID: lambda base, value: base(int=value.int),
    bytes: lambda base, value: base(value),
    bytearray: lambda base, value: base(value),
}


def to_builtins(value: object, **options: Any) -> object:
    """``value`` as msgspec writes it, a set in order: its own order is another one in each process."""
    try:
        return msgspec.to_builtins(value, enc_hook=encode_subclass, order="deterministic", **options)
    except TypeError:  # perhaps a set whose members have no order
        return msgspec.to_builtins(value, enc_hook=encode_subclass, **options)


def restore(plain: object, hint: Any) -> object:
    return msgspec.convert(plain, hint, dec_hook=_restore_subclass)


def _restore_subclass(hint: type, plain: object) -> object:
    """What msgspec knows no way to make; it refuses what is no instance of the hint.

    Under freezegun an annotation may be its datetime, of which every datetime is an instance.
    """
    for base in _AS_TEXT:
        if issubclass(hint, base):
            return msgspec.convert(plain, base)
    return plain


def check_restored(value: object, restored: object, where: str) -> None:
    """Raises: InvalidJob naming a part of ``value`` that is not in what it will be restored as."""
    try:
        if restored == value:
            return
    except Exception:  # noqa: BLE001, S110  (an __eq__ of the caller's own)
        pass
    options = {"builtin_types": tuple(_AS_TEXT)}
    _check_kept(to_builtins(value, **options), to_builtins(restored, **options), where)


def _check_kept(sent: object, back: object, where: str) -> None:
    if isinstance(sent, dict) and isinstance(back, dict):
        for key, item in sent.items():
            if key not in back:
                raise InvalidJob(f"{where} has {key!r}, for which its annotation has no place")
            _check_kept(item, back[key], f"{where}[{key!r}]")
    elif isinstance(sent, (list, tuple)) and isinstance(back, (list, tuple)):
        for index, (item, kept) in enumerate(zip(sent, back, strict=False)):
            _check_kept(item, kept, f"{where}[{index}]")
    elif type(sent) in _AS_TEXT and (isinstance(back, str) or _has_odd_offset(sent)):
        raise InvalidJob(
            f"{where} is {sent!r}, which would come back as {back!r}: "
            "annotate it with its type, or pass something simpler"
        )


def _has_odd_offset(sent: object) -> bool:
    """Whether its offset from UTC, as some of long ago, has seconds: offsets are written in minutes."""
    offset = sent.utcoffset() if isinstance(sent, datetime) else None
    return offset is not None and offset.seconds % 60 != 0


def encode_subclass(value: object) -> object:
    """One of a subclass is what it is a kind of (Django's SafeString, NumPy's float64), if it equals that."""
    plain = exact(value)
    if plain is not None:
        return plain
    for base, convert in _AS_TEXT.items():
        if isinstance(value, base) and (same := convert(base, value)) == value:
            return same
    hint = ": pass its primary key" if is_model_instance(value) else ""
    raise TypeError(f"a {type(value).__name__} cannot be stored{hint}")


def is_model_instance(value: object) -> bool:
    """Whether it is one of Django's; told by its looks, as this needs no app registry."""
    return hasattr(value, "_meta") and hasattr(value, "pk")


def exact(value: object) -> object:
    """The str, int or float that a value of a subclass is; by the base's own methods, as the
    subclass's may answer with itself again (SafeString's ``__str__`` does)."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return None
