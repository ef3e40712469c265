"""The worker's own connections: raw psycopg, one for each purpose, opened when first used."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, TypeAlias

import psycopg
from django.db import connections
from psycopg import IsolationLevel
from psycopg.types.string import TextLoader

from awa_django.conf import get_settings
from awa_django.errors import SchemaMismatch
from awa_django.storage import inspect
from awa_django.storage.inspect import SCHEMA_VERSION

PsycopgConnection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# Found within about 30 s: a peer that answers nothing any more.
_KEEPALIVES = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# What Django's own connections take beside libpq's parameters.
_NOT_LIBPQ = (
    "cursor_factory",
    "context",
    "prepare_threshold",
    "isolation_level",
    "autocommit",
    "row_factory",
)


def connection_parameters() -> dict[str, Any]:
    """libpq's parameters of the configured alias, with keepalives where they say nothing themselves."""
    parameters = connections[get_settings().database].get_connection_params()
    for name in _NOT_LIBPQ:
        parameters.pop(name, None)
    return {**_KEEPALIVES, **parameters}


def connect(application_name: str, **overrides: Any) -> PsycopgConnection:
    """Open a connection in autocommit, whose statements are planned with their values.

    jsonb arrives as text, as on Django's connections: each job decodes its own.
    The worker's statements are right under READ COMMITTED, so where a role defaults to more each is
    sent in a transaction that names it.
    """
    parameters = connection_parameters() | overrides | {"application_name": application_name}
    conninfo = parameters.pop("conninfo", "")
    connection = psycopg.connect(conninfo, **parameters, autocommit=True, prepare_threshold=None)
    try:
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        connection.adapters.register_loader("jsonb", TextLoader)
        level = connection.execute("SHOW default_transaction_isolation").fetchone()
        if level != ("read committed",):
            connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    return connection


class Session:
    """One connection that is opened when first used, and opened anew after it broke.

    ``use`` serialises its users: services that share a session take turns.
    """

    def __init__(self, application_name: str, **overrides: Any) -> None:
        self.application_name = application_name
        self._overrides = overrides
        self._connection: PsycopgConnection | None = None
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def use(self) -> Iterator[PsycopgConnection]:
        """The connection; what the block did is committed at its end, and rolled back after an error."""
        with self._lock:
            connection = self._connection
            if connection is None or connection.closed:
                connection = self._connection = connect(self.application_name, **self._overrides)
            try:
                yield connection
                if not connection.autocommit:
                    connection.commit()
            except BaseException:
                self._recover(connection)
                raise

    def close(self) -> None:
        """Close the connection; the next use opens a new one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _recover(self, connection: PsycopgConnection) -> None:
        try:
            if not connection.closed and not connection.broken:
                connection.rollback()
                return
        except psycopg.Error:
            pass
        connection.close()
        self._connection = None


def is_connection_error(exc: BaseException) -> bool:
    """Whether the connection, or the server behind it, is not fit for use: connect anew and try again.

    Class 08 is a broken connection, 57P a server that stops or starts, 25006 a server that turned
    out to be a read-only standby; no SQLSTATE at all is the client's own "connection lost".
    """
    if isinstance(exc, psycopg.InterfaceError):
        return True
    if not isinstance(exc, psycopg.Error):
        return False
    if exc.sqlstate is None:
        return isinstance(exc, psycopg.OperationalError)
    return exc.sqlstate.startswith(("08", "57P")) or exc.sqlstate in ("25006", "25P03", "53300")


def check_schema(connection: PsycopgConnection) -> None:
    """Raises: SchemaMismatch, with what to do, when the installed schema is not this code's."""
    try:
        found = inspect.schema_version(connection)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        found = None
    if found != SCHEMA_VERSION:
        raise SchemaMismatch(expected=SCHEMA_VERSION, found=found)
