"""Listener: LISTEN on a connection of its own; a notification wakes the children that are idle.

A hint only: polling alone finds every job. Producers notify only while someone waits, so the
listener also says when the children are idle, and takes it back when they are not.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import psycopg

from awa_django import failpoints
from awa_django.logs import get_logger
from awa_django.storage import waiters
from awa_django.worker.child_process import ChildProcess
from awa_django.worker.database import PsycopgConnection, Session
from awa_django.worker.service import Service
from awa_django.worker.slots import Counter

logger = get_logger(__name__)

# A claimer that has found nothing for this long is idle. Under a steady flow none ever is, and
# producers do not pay (8 producers: 2,840 enqueues/s, 1,240 when each insert notifies).
IDLE_AFTER = 0.1
# Producers are asked to notify for this long after a child was last idle.
KEEP_WAITING = 2.0
TTL = timedelta(seconds=10)
RENEW_AFTER = 5.0
LOOK_EVERY = 0.1
LISTEN_AGAIN = 5.0
# Our own notification must come back within this.
PROOF_WITHIN = 3.0


class Listener(Service):
    """One connection that listens, and one short statement every few seconds while idle."""

    name = "listener"
    interval = timedelta(0)

    def __init__(
        self,
        listen_session: Session,
        session: Session,
        children: Callable[[], Iterable[ChildProcess]],
        *,
        worker: str,
        queues: Sequence[str],
    ) -> None:
        super().__init__()
        self._listen_session = listen_session
        self._session = session
        self._children = children
        self._worker = worker
        self._queues = queues
        self._listening: PsycopgConnection | None = None
        self._listened_at = float("-inf")
        self._proof = ""
        self._proof_due = float("inf")
        self._is_deaf = True
        self._has_warned = False
        self._last_idle = float("-inf")
        self._renewed = float("-inf")

    def tick(self) -> float | None:
        failpoints.hit("in_listener")
        with self._listen_session.use() as connection:
            self._listen(connection)
            self._keep_waiting()
            heard = {note.payload for note in connection.notifies(timeout=LOOK_EVERY, stop_after=1)}
        # Not when it comes too late: a pooler hands over what it has with some later statement.
        if self._proof in heard and self._proof_due < float("inf"):
            self._is_deaf = self._has_warned = False
            self._proof_due = float("inf")
        if not heard.isdisjoint(self._queues):
            self.wake_children()
        return 0.0

    @property
    def hears(self) -> bool:
        """Whether notifications are known to arrive here."""
        return not self._is_deaf

    def wake_children(self) -> None:
        """Let every idle child look."""
        for child in self._children():
            if child[Counter.IDLE_SINCE_NS]:
                child.wake()

    def _listen(self, connection: PsycopgConnection) -> None:
        """Listen on a new connection, and ask for proof that it hears; again now and then.

        To listen again changes nothing, and finds out that the other side is gone.
        """
        now = time.monotonic()
        if connection is not self._listening:
            connection.autocommit = True  # LISTEN in a transaction hears nothing
            waiters.listen(connection)
            self._listening = connection
            self._listened_at = now
            self._proof = f"proof {secrets.token_hex(8)}"
            self._proof_due = now + PROOF_WITHIN
            with self._session.use() as other:
                waiters.notify(other, self._proof)
            self.wake_children()
        elif now - self._listened_at >= LISTEN_AGAIN:
            waiters.listen(connection)
            self._listened_at = now
        if now >= self._proof_due:
            self._proof_due = float("inf")
            self._is_deaf = True
            if not self._has_warned:
                logger.warning(
                    "notifications do not arrive here (is there a transaction pooler in between?): "
                    "jobs are found by polling alone; AWA['LISTEN_URL'] can name a direct connection for them"
                )
            self._has_warned = True

    def _keep_waiting(self) -> None:
        if self._is_deaf:
            return  # producers would notify in vain
        now = time.monotonic()
        idle_since = [child[Counter.IDLE_SINCE_NS] for child in self._children()]
        if any(since and now - since / 1e9 >= IDLE_AFTER for since in idle_since):
            self._last_idle = now
        if now - self._last_idle <= KEEP_WAITING:
            if now - self._renewed >= RENEW_AFTER:
                with self._session.use() as connection:
                    waiters.wait(connection, self._worker, self._queues, ttl=TTL)
                self._renewed = now
        else:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._renewed > float("-inf"):
            with self._session.use() as connection:
                waiters.stop_waiting(connection, self._worker)
            self._renewed = float("-inf")

    def close(self) -> None:
        try:
            self._stop_waiting()  # or producers would tell it of each job for some seconds more
        except psycopg.Error as exc:
            logger.debug("the worker's wait is not taken back, and runs out: %s", exc)
        self._listen_session.close()
        self._session.close()
