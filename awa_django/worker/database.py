"""The worker's own connections: raw psycopg, one for each purpose, opened when first used."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, TypeAlias

import psycopg
from django.db import connections
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import TextLoader

from awa_django.conf import get_settings
from awa_django.errors import AwaError, SchemaMismatch
from awa_django.storage import inspect
from awa_django.storage.inspect import SCHEMA_VERSION
from awa_django.storage.plan import always_plan_by_index
from awa_django.storage.prepared import has_lost_its_statements, prepare
from awa_django.storage.rights import missing_grants
from awa_django.worker.watchdog import Watch

PsycopgConnection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# Seconds that a statement of the worker's may take; none of them waits for anything but a lock.
STATEMENT_LIMIT = 10.0

# Seconds that a transaction of several statements may wait for its worker: a machine that is frozen or
# gone in its middle would keep the rows locked until its server notices, which may take hours.
IDLE_LIMIT = 10.0

# Seconds after which a batch asks which of its rows somebody else has locked, and goes on without.
BATCH_PATIENCE = 1.0

# Milliseconds that a part of a batch waits for a lock, when the whole has waited in vain.
LOCK_WAIT = 50

# Found within about 30 s: a peer that answers nothing any more.
_DEFAULTS = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    # Of several hosts the one that is the primary now; a lone standby is refused, and tried again.
    "target_session_attrs": "read-write",
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
    """libpq's parameters of the configured alias, with our defaults where they say nothing themselves."""
    parameters = connections[get_settings().database].get_connection_params()
    for name in _NOT_LIBPQ:
        parameters.pop(name, None)
    return {**_DEFAULTS, **parameters}


def connect(
    application_name: str,
    *,
    conninfo: str | None = None,
    limit: float = STATEMENT_LIMIT,
    prepares: bool = True,
    by_index: bool = False,
) -> PsycopgConnection:
    """Open a connection in autocommit, whose statements are planned with their values.

    jsonb arrives as text, as on Django's connections: each job decodes its own.
    The worker's statements are right under READ COMMITTED, so where a role defaults to more each is
    sent in a transaction that names it. ``conninfo`` leads elsewhere than the configured alias;
    ``limit`` is the seconds that the server has to answer once it is connected. With
    ``prepares``, and no pooler in between, it reads each statement once, and with ``by_index`` as well it
    plans as ``planned_by_index`` asks for.
    """
    parameters = connection_parameters() if conninfo is None else _DEFAULTS | conninfo_to_dict(conninfo)
    parameters["application_name"] = application_name
    connection = psycopg.connect(**parameters, autocommit=True, prepare_threshold=None)
    watch = Watch(application_name)
    watch.begin(connection, limit)
    try:
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        connection.adapters.register_loader("jsonb", TextLoader)
        level, answered_by = inspect.session(connection)
        if prepares and answered_by == connection.info.backend_pid:
            prepare(connection)
            if by_index:
                always_plan_by_index(connection)
        if level != "read committed":
            connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    finally:
        watch.end()
    return connection


class Session:
    """One connection that is opened when first used, and opened anew after it broke.

    ``use`` serialises its users: services that share a session take turns. What it does may take
    ``limit`` seconds before its statement is cancelled, and the connection given up. With less
    ``patience`` a statement is cancelled after that, for its user to go on in another way.
    """

    def __init__(
        self,
        application_name: str,
        *,
        limit: float = STATEMENT_LIMIT,
        patience: float | None = None,
        conninfo: str | None = None,
        by_index: bool = False,
    ) -> None:
        self.application_name = application_name
        self._by_index = by_index
        self._limit = limit
        self._patience = patience
        self._conninfo = conninfo
        self._watch = Watch(application_name)
        self._prepares = True
        self._connection: PsycopgConnection | None = None
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def use(self) -> Iterator[PsycopgConnection]:
        """The connection; what the block did is committed at its end, and rolled back after an error."""
        with self._lock:
            connection = self._connection
            if connection is None or connection.closed:
                connection = self._connection = connect(
                    self.application_name,
                    conninfo=self._conninfo,
                    limit=self._limit,
                    prepares=self._prepares,
                    by_index=self._by_index,
                )
            self._watch.begin(connection, self._limit, self._patience)
            try:
                yield connection
                if not connection.autocommit:
                    connection.commit()
            except BaseException as exc:
                self._recover(connection, exc)
                raise
            finally:
                self._watch.end()

    def cancel(self) -> None:
        """Have the statement of whoever uses it now cancelled; does not wait for that."""
        self._watch.cancel()

    def close(self) -> None:
        """Close the connection; the next use opens a new one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _recover(self, connection: PsycopgConnection, exc: BaseException) -> None:
        """Roll back; or close what is broken, or leads to a server that cannot be written to."""
        self._prepares = self._prepares and not has_lost_its_statements(exc)
        try:
            if not (connection.closed or connection.broken or is_connection_error(exc)):
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
    if isinstance(exc, psycopg.InterfaceError) or has_lost_its_statements(exc):
        return True
    if not isinstance(exc, psycopg.Error):
        return False
    if exc.sqlstate is None:
        return isinstance(exc, psycopg.OperationalError)
    return exc.sqlstate.startswith(("08", "57P")) or exc.sqlstate in ("25006", "25P03", "53300")


@contextlib.contextmanager
def transaction(connection: PsycopgConnection) -> Iterator[None]:
    """A transaction that its server ends when its worker says nothing for ``IDLE_LIMIT`` seconds."""
    with connection.transaction():
        inspect.limit_idling(connection, milliseconds=int(IDLE_LIMIT * 1000))
        yield


@contextlib.contextmanager
def short_lock_wait(connection: PsycopgConnection) -> Iterator[None]:
    """A transaction, or a savepoint in one, that waits for a lock for ``LOCK_WAIT`` milliseconds only."""
    with connection.transaction():
        inspect.limit_lock_wait(connection, milliseconds=LOCK_WAIT)
        yield


def check_schema(connection: PsycopgConnection) -> None:
    """Raises: SchemaMismatch, with what to do, when the installed schema is not this code's."""
    try:
        found = inspect.schema_version(connection)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        found = None
    if found != SCHEMA_VERSION:
        raise SchemaMismatch(expected=SCHEMA_VERSION, found=found)


def check_rights(connection: PsycopgConnection) -> None:
    """Raises: AwaError, with the grants to make, when this role may not do all that a worker does.

    Some grants are newer than the first: what needs them would fail again and again, long after the start.
    """
    missing = missing_grants(connection)
    if missing:
        raise AwaError(
            "this database role may not do what a worker does (docs/roles.md), as these grants are missing: "
            f"{'; '.join(missing)}"
        )
