"""The order of a list, and places in it: a page begins behind a row, not behind a number of rows.

So the last page costs what the first does, and a row that vanishes moves no other from page to page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import BooleanField, F, Field, Func, QuerySet, Subquery, Value

from awa_django.operations import LARGEST_ID

Key = tuple[Any, ...]
# In a URL: 17, or 20261130T031201.123456Z~17.
_SEPARATOR = "~"
_INSTANT = "%Y%m%dT%H%M%S.%fZ"


@dataclass(frozen=True, slots=True)
class Order:
    """The columns of an order that an index has, the last of them the id, all in one direction."""

    columns: tuple[str, ...] = ("id",)
    descending: bool = False

    def by(self, prefix: Iterable[str] = (), *, backwards: bool = False) -> list[str]:
        """For ``order_by``, behind the columns of the index that come before."""
        sign = "-" if self.descending != backwards else ""
        return [sign + column for column in (*prefix, *self.columns)]

    def behind(self, key: Key, *, backwards: bool = False, inclusive: bool = False) -> Func:
        """Rows that come behind ``key`` (backwards: before it)."""
        operator = ("<" if self.descending != backwards else ">") + ("=" if inclusive else "")
        return _Comparison(self.columns, key, operator)

    def key(self, row: Any) -> Key:
        return tuple(getattr(row, column) for column in self.columns)

    def write(self, key: Key) -> str:
        """A key for a URL."""
        *instants, pk = key
        return _SEPARATOR.join([*(at.astimezone(UTC).strftime(_INSTANT) for at in instants), str(pk)])

    def read(self, text: str) -> Key | None:
        """The key that a URL has, None where that is no key of this order."""
        *instants, pk = text.split(_SEPARATOR)
        if len(instants) != len(self.columns) - 1 or not (pk.isascii() and pk.isdecimal() and len(pk) < 20):
            return None
        if int(pk) > LARGEST_ID:
            return None
        try:
            times = [datetime.strptime(text, _INSTANT).replace(tzinfo=UTC) for text in instants]
        except ValueError:
            return None
        return (*times, int(pk))


class _Comparison(Func):
    """``(run_at, id) > (..., 17)``: compared as rows it is a range of the index, among equal instants too."""

    output_field: Field[Any, Any] = BooleanField()

    def __init__(self, columns: tuple[str, ...], key: Key, operator: str) -> None:
        super().__init__(*map(F, columns), *map(Value, key))
        self.operator = operator

    def as_sql(self, compiler: Any, connection: Any, *_: Any, **__: Any) -> Any:
        texts, params = _compile(self, compiler)
        half = len(texts) // 2
        return f"({', '.join(texts[:half])}) {self.operator} ({', '.join(texts[half:])})", params


class OneOf(Func):
    """``column = ANY (ARRAY['value', ...])``: to the planner no constant, not even of one value.

    So ORDER BY names the column as the index does, and no other index is in that order: however few or
    many rows statistics say there are, the list is read by this one.
    """

    output_field: Field[Any, Any] = BooleanField()

    def __init__(self, column: str, *values: object) -> None:
        super().__init__(F(column), *map(Value, values))

    def as_sql(self, compiler: Any, connection: Any, *_: Any, **__: Any) -> Any:
        (column, *values), params = _compile(self, compiler)
        kind = self.get_source_expressions()[0].output_field.db_type(connection)
        return f"{column} = ANY (ARRAY[{', '.join(values)}]::{kind}[])", params


class AmongIds(Func):
    """``id = ANY (ARRAY(SELECT ...))``: few rows by the primary key, never a join that may scan."""

    output_field: Field[Any, Any] = BooleanField()

    def __init__(self, ids: QuerySet[Any, Any]) -> None:
        super().__init__(F("id"), Subquery(ids, template="(ARRAY(%(subquery)s))"))

    def as_sql(self, compiler: Any, connection: Any, *_: Any, **__: Any) -> Any:
        (column, ids), params = _compile(self, compiler)
        return f"{column} = ANY {ids}", params


class CountTo(Subquery):
    """How many rows the queryset has, as a column: with the rows of a page in one statement."""

    template = "(SELECT count(*) FROM (%(subquery)s) AS counted)"


def narrow(queryset: QuerySet[Any], prefix: Mapping[str, str]) -> QuerySet[Any]:
    """The queryset's rows with these values in the first columns of the index to be read by."""
    for column, value in prefix.items():
        queryset = queryset.filter(OneOf(column, value))
    return queryset


def _compile(expression: Func, compiler: Any) -> tuple[list[str], list[Any]]:
    texts, params = [], []
    for source in expression.get_source_expressions():
        text, values = compiler.compile(source)
        texts.append(text)
        params.extend(values)
    return texts, params
