"""Fields for the column types of the schema that Django has none for.

They need no ``django.contrib.postgres``, and no value of one row makes a query fail for others: JSON
that Python cannot represent arrives as its text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models.lookups import PostgresOperatorLookup

from awa_django.states import JobState


class UndecodedJSON(str):
    """The text of a JSON value that Python cannot load: nested too deep, or a number too long."""

    __slots__ = ()


def decode_json(text: Any) -> Any:
    """The value of JSON text, or the text itself as UndecodedJSON when Python cannot load it."""
    if not isinstance(text, str | bytes):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return UndecodedJSON(text if isinstance(text, str) else text.decode("utf-8", "replace"))


class JobStateField(models.CharField):  # type: ignore[type-arg]
    """A column of the enum ``awa.job_state``; values are its labels."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["max_length"] = 20
        kwargs["choices"] = [(state.value, state.value.replace("_", " ")) for state in JobState]
        super().__init__(*args, **kwargs)

    def db_type(self, connection: Any) -> str:
        return "awa.job_state"

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        kwargs.pop("max_length", None)
        kwargs.pop("choices", None)
        return name, path, args, kwargs


class JSONBField(models.JSONField):
    """A jsonb column with the lookups of JSONField; loads leniently, see ``decode_json``."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return UndecodedJSON(value)


class _ArrayField(models.Field):  # type: ignore[type-arg]
    """An array column. As text, which serializers ask for, it is a JSON list, as Django's own array is."""

    def to_python(self, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    def value_to_string(self, obj: models.Model) -> str:
        return json.dumps(self.value_from_object(obj), cls=DjangoJSONEncoder)


class JSONBArrayField(_ArrayField):
    """A jsonb[] column as a list of values."""

    def db_type(self, connection: Any) -> str:
        return "jsonb[]"

    def from_db_value(self, value: Any, *_: Any) -> Any:
        return None if value is None else [decode_json(item) for item in value]

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if value is None or hasattr(value, "as_sql"):
            return value
        return [connection.ops.adapt_json_value(item, None) for item in value]


class TextArrayField(_ArrayField):
    """A text[] column as a list of strings, with the ``contains`` lookup."""

    def db_type(self, connection: Any) -> str:
        return "text[]"

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        if value is None or hasattr(value, "as_sql"):
            return value
        if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
            raise TypeError(f"{self.name} takes a list of strings, not {value!r}")
        return [str(item) for item in value]


@TextArrayField.register_lookup
class TextArrayContains(PostgresOperatorLookup):
    """``tags__contains=["a", "b"]``: both are among the tags."""

    lookup_name = "contains"
    postgres_operator = "@>"

    def process_rhs(self, qn: Any, connection: Any) -> Any:
        sql, params = super().process_rhs(qn, connection)
        return f"{sql}::text[]", params


class HistogramField(_ArrayField):
    """An integer[] column as a list of counts, see ``awa_django.histogram``."""

    def db_type(self, connection: Any) -> str:
        return "integer[]"


class BitMaskField(models.CharField):  # type: ignore[type-arg]
    """The bit(8) of the states in which a job holds its key, as a string of 0 and 1."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["max_length"] = 8
        super().__init__(*args, **kwargs)

    def db_type(self, connection: Any) -> str:
        return "bit(8)"

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        kwargs.pop("max_length", None)
        return name, path, args, kwargs


class UniqueKeyField(models.BinaryField):  # type: ignore[type-arg]
    """A bytea column; takes hexadecimal text too, as people and URLs write it."""

    def to_python(self, value: Any) -> Any:
        return bytes.fromhex(value) if isinstance(value, str) else value

    def get_prep_value(self, value: Any) -> Any:
        return super().get_prep_value(self.to_python(value))

    def value_to_string(self, obj: models.Model) -> str:
        value = self.value_from_object(obj)
        return "" if value is None else bytes(value).hex()
