"""Put back what a masked text hides: a masked value that was left as it is keeps the stored one."""

from __future__ import annotations

from django.utils.translation import gettext as _

from awa_django.exact_json import Exact, Number
from awa_django.redaction import MASK


class Masked(Exception):
    """A mask stands where it hides nothing that could be put back. The text is for the user."""


def unmask(wanted: Exact, shown: Exact, stored: Exact, where: str = "") -> Exact:
    """What was meant by ``wanted``, which somebody made of ``shown``, the masked form of ``stored``.

    Objects are compared name by name. An element of a list that was changed must have no mask: it may
    have come from another place, and would get another one's secret. Neither must one that looks like
    others in a list that got longer or shorter: nobody can tell which of them it is.

    Raises: Masked naming the place.
    """
    if wanted == shown:
        return stored
    if isinstance(wanted, dict) and isinstance(shown, dict) and isinstance(stored, dict):
        meant: dict[str, Exact] = {}
        for name, value in wanted.items():
            place = f"{where}.{name}" if where else name
            if name in shown and name in stored:
                meant[name] = unmask(value, shown[name], stored[name], place)
            else:
                _written_out(name, place)
                meant[name] = _written_out(value, place)
        return meant
    if isinstance(wanted, list) and isinstance(shown, list) and isinstance(stored, list):
        has_moved = len(wanted) != len(shown)
        return [
            stored[index]
            if index < len(shown) and value == shown[index] and not (has_moved and _is_any_of(value, shown))
            else _written_out(value, f"{where}[{index}]")
            for index, value in enumerate(wanted)
        ]
    return _written_out(wanted, where)


def _is_any_of(value: Exact, shown: list[Exact]) -> bool:
    """Whether it hides something, and several look like it."""
    return _has_mask(value) and shown.count(value) > 1


def _written_out(value: Exact, where: str) -> Exact:
    if _has_mask(value):
        text = _(
            "%(where)s has %(mask)s, which hides nothing here that could be kept: write the value out, "
            "or leave it as it was"
        )
        raise Masked(text % {"where": where, "mask": MASK})
    return value


def _has_mask(value: Exact) -> bool:
    if isinstance(value, str):
        return MASK in value
    if isinstance(value, dict):
        return any(map(_has_mask, value)) or any(map(_has_mask, value.values()))
    if isinstance(value, list):
        return any(map(_has_mask, value))
    return isinstance(value, Number) and MASK in value.digits
