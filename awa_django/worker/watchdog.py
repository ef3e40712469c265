"""Watchdog: ends what a connection has waited for too long, also when nothing answers any more.

A half-open socket (the other side is gone, and nobody said so) blocks its reader for ever, and
keepalives do not help where something in between still acknowledges. So each use of a session has
a limit: past it the statement is cancelled, and a little later the socket is shut.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from typing import Any

import psycopg

from awa_django.logs import get_logger

logger = get_logger(__name__)

LOOK_EVERY = 0.5
# Between the cancel, which the server answers at once if it is there, and the end of the socket.
GRACE = 5.0
CANCEL_TIMEOUT = 4.0


class Watch:
    """One use of a connection, from ``begin`` to ``end``; made anew for each session, not each use."""

    __slots__ = ("__weakref__", "_connection", "_is_cancelled", "_limit", "_name", "_patience", "_since")

    def __init__(self, name: str) -> None:
        self._name = name
        self._connection: psycopg.Connection[Any] | None = None
        self._since = 0.0
        self._limit = 0.0
        self._patience = 0.0
        self._is_cancelled = False
        _watches.add(self)
        _ensure_running()

    def begin(self, connection: psycopg.Connection[Any], limit: float, patience: float | None = None) -> None:
        """The connection is in use from now, for at most ``limit`` seconds.

        The statement that runs after ``patience`` (by default ``limit``) seconds is cancelled, once.
        """
        self._connection = connection
        self._limit = limit
        self._patience = limit if patience is None else patience
        self._is_cancelled = False
        self._since = time.monotonic()

    def end(self) -> None:
        self._since = 0.0

    def look(self) -> None:
        """Cancel, and later shut, what is over its limit."""
        since, connection = self._since, self._connection
        if not since or connection is None:
            return
        took = time.monotonic() - since
        if took > self._limit + GRACE:
            logger.warning("%s: no answer for %.0f s, the connection is given up", self._name, took)
            self._since = 0.0
            _shut(connection)
        elif took > self._patience and not self._is_cancelled:
            self._is_cancelled = True
            logger.warning("%s: a statement took over %.3g s and is cancelled", self._name, self._patience)
            self.cancel()

    def cancel(self) -> None:
        """Have the statement that runs now, if one does, cancelled; returns at once."""
        connection = self._connection
        if self._since and connection is not None:
            # On a thread: a server that is gone does not answer a cancel either.
            threading.Thread(target=_cancel, args=(connection,), name="awa-cancel", daemon=True).start()


_watches: weakref.WeakSet[Watch] = weakref.WeakSet()
_lock = threading.Lock()
_thread: threading.Thread | None = None


def _ensure_running() -> None:
    global _thread
    with _lock:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_serve, name="awa-watchdog", daemon=True)
            _thread.start()


def _serve() -> None:
    while True:
        time.sleep(LOOK_EVERY)
        for watch in list(_watches):
            try:
                watch.look()
            except Exception:
                logger.exception("the watchdog stumbled")


def _cancel(connection: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(psycopg.Error, OSError):
        connection.cancel_safe(timeout=CANCEL_TIMEOUT)


def _shut(connection: psycopg.Connection[Any]) -> None:
    """End the socket under a reader that waits on it: closing alone would leave it waiting."""
    with (
        contextlib.suppress(psycopg.Error, OSError),
        socket.socket(fileno=os.dup(connection.fileno())) as end,
    ):
        end.shutdown(socket.SHUT_RDWR)
