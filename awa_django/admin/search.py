"""What the search box of a list of jobs takes: an id, a kind, a unique key, ``tag:`` or ``arg:``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from awa_django import registry
from awa_django.admin.keyset import OneOf
from awa_django.job_secrets import secret_names
from awa_django.models import UniqueClaim
from awa_django.operations import LARGEST_ID
from awa_django.redaction import MASK, MASKED_KEY, pretty_json

HELP = _l(
    "An id; a kind or a part of one; the 32 hexadecimal digits of a unique key that is held; tag:NAME; "
    "arg:NAME=VALUE, with dots into what is nested."
)
# Names in the path of an argument, and what a value may nest.
DEEPEST_ARG = 20
_KEY = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class Search:
    """What a term means. Only ``ids`` and a single kind are served by an index."""

    condition: Q | OneOf | None = None
    """None: nothing can match."""
    kind: str | None = None
    is_ids: bool = False
    is_in_json: bool = False
    problem: str = ""
    """Why the term could not be searched for, for the user."""

    def apply(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.none() if self.condition is None else queryset.filter(self.condition)


def read(term: str, matches: Sequence[str]) -> Search:
    """The meaning of a term that is not empty; ``matches`` are the known kinds in which it is found."""
    if term.isascii() and term.isdecimal():
        number = int(term) if len(term) < 20 else LARGEST_ID + 1
        return Search(OneOf("id", number) if number <= LARGEST_ID else None, is_ids=True)
    if _KEY.fullmatch(term):
        holders = UniqueClaim.objects.filter(unique_key=term).values_list("job_id", flat=True)
        ids = list(holders)
        return Search(OneOf("id", *ids) if ids else None, is_ids=True)
    word, colon, rest = term.partition(":")
    if colon and word == "tag":
        return Search(Q(tags__contains=[rest.strip()]))
    if colon and word == "arg":
        return _read_arg(rest)
    kinds = list(dict.fromkeys([*matches, term]))
    if matches and term not in matches:  # a part of kinds, and not one that the catalogue does not know
        kinds.remove(term)
    if len(kinds) == 1:
        return Search(Q(kind=kinds[0]), kind=kinds[0])
    return Search(Q(kind__in=kinds))


def _read_arg(text: str) -> Search:
    path, equals, value = text.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names) or len(names) > DEEPEST_ARG:
        return Search(problem=_("Write arg:NAME=VALUE, such as arg:order_id=17 or arg:address.city=Bonn."))
    condition = Q()
    for meant in _values(value.strip()):
        wanted = meant
        for name in reversed(names):
            wanted = {name: wanted}
        # Who guesses a masked value would be told when the guess is right.
        if MASK in pretty_json(json.dumps(wanted, ensure_ascii=False)):
            return Search(problem=_("A value that is masked cannot be searched for."))
        condition |= Q(args__contains=wanted)
        for name in _keys(wanted):
            condition &= _not_declared_secret(name)
    return Search(condition, is_in_json=True)


def _keys(value: Any) -> Iterator[str]:
    """Every key in it, which is at most 2 * DEEPEST_ARG deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


def _not_declared_secret(name: str) -> Q:
    """Jobs that do not mask this argument: neither by their kind nor by what they were enqueued with."""
    kinds = [kind for kind in registry.kinds() if name in secret_names(kind)]
    declared = Q(metadata__contains={MASKED_KEY: [name]})
    return ~(declared | Q(kind__in=kinds)) if kinds else ~declared


def _values(text: str) -> list[Any]:
    """The values that a text may mean: itself, and what it is as JSON where PostgreSQL can store that."""
    values: list[Any] = [text]
    try:
        value = json.loads(text)
        encoded = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        depth = text.count("[") + text.count("{")
    except (ValueError, RecursionError):
        return values
    if depth <= DEEPEST_ARG and b"\\u0000" not in encoded:
        values.append(value)
    return values
