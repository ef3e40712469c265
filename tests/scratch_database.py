"""A database of its own for tests that install, reverse and break the schema."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def scratch_url(database_url: str) -> Iterator[str]:
    """The URL of an empty database on the tests' server, dropped at the end."""
    name = f"awa_scratch_{os.getpid()}"
    parts = urlsplit(database_url)
    with psycopg.connect(database_url, autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield urlunsplit(parts._replace(path=f"/{name}"))
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def scratch(scratch_url: str) -> Query:
    """``scratch(query)`` runs a query on the scratch database and gives its rows."""

    def query(text: str, *params: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(scratch_url, autocommit=True) as connection:
            cursor = connection.execute(text, params or None)
            return [] if cursor.description is None else cursor.fetchall()

    return query
