"""Django's own connections: looked after round each job as Django does round a request."""

from __future__ import annotations

import threading
from contextlib import suppress

from django.core.cache import caches
from django.db import close_old_connections, connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from awa_django.logs import get_logger

logger = get_logger(__name__)

# A session in one of these is in a transaction that nobody will end.
_OPEN = (TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR)


class _Thread(threading.local):
    has_connected = False


_thread = _Thread()
# The same by thread, for others to ask. An ident may come again: then somebody is looked after in vain.
_connected: set[int | None] = set()


def prepare_own_thread() -> None:
    """Have the caches of this thread be there for all its jobs, as they are for all requests of a thread.

    Django keeps them in the context. A job runs in a copy of the thread's, so a cache that it were the
    first to use would be its alone, as would the connections to its server.
    """
    for alias in caches:
        with suppress(Exception):  # whoever uses it is told what is wrong
            caches[alias]


def tidy() -> None:
    """For every alias of this thread: forget its queries, and close what is old or broken.

    A thread that has never connected has nothing to look after: it may run 100,000 jobs a second.
    """
    if _thread.has_connected:
        reset_queries()
        close_old_connections()


def tidy_own_thread() -> None:
    """``tidy`` where one job runs at a time: no transaction may go on from one job to the next.

    Django closes no connection inside of an atomic block. So what a handler entered and never left
    would take in all jobs to come on this thread, and commit none of their work.
    """
    if _thread.has_connected:
        for connection in connections.all(initialized_only=True):
            if _is_in_transaction(connection):
                _drop(connection)
        tidy()


def disconnect() -> None:
    """Close the connections of this thread, and the pools of this process: it has no sessions then."""
    connections.close_all()
    pools = DatabaseWrapper._connection_pools  # type: ignore[attr-defined]
    while pools:
        pools.popitem()[1].close()


def forget_inherited() -> list[object]:
    """In a process just forked: let Django open connections of its own; what its parent had, to be kept.

    The sockets are the parent's: kept, unused and unclosed, for closing would end the parent's sessions.
    """
    inherited: list[object] = []
    for connection in connections.all(initialized_only=True):
        inherited.append(connection)
        del connections[connection.alias]
    pools = DatabaseWrapper._connection_pools  # type: ignore[attr-defined]
    while pools:
        inherited.append(pools.popitem()[1])
    return inherited


def _is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether a block is open, or a transaction that Django knows nothing of (a handler's own BEGIN)."""
    pgconn = getattr(connection.connection, "pgconn", None)  # other databases have none
    return connection.in_atomic_block or (pgconn is not None and pgconn.transaction_status in _OPEN)


def _drop(connection: BaseDatabaseWrapper) -> None:
    """End its session, which rolls back; the next job gets another connection."""
    logger.warning(
        "a handler left a transaction open on the database alias %s: it is rolled back", connection.alias
    )
    try:
        connection.close()
    finally:
        del connections[connection.alias]


def has_connected(thread: threading.Thread) -> bool:
    """Whether Django has ever opened a connection on this thread, which may be open still."""
    return thread.ident in _connected


def _note(**_: object) -> None:
    _thread.has_connected = True
    _connected.add(threading.get_ident())


connection_created.connect(_note, dispatch_uid="awa_django.worker.django_connections")
