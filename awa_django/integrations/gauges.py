"""Gauges: the queue's own metrics for OpenTelemetry, in the words of those for Prometheus.

They are about the whole installation, so one process tells them: the worker that leads, or the one in which
a project calls ``observe_queue``. Where no meter provider is set nothing is asked. docs/tracing.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from django.db import DatabaseError, InterfaceError, connections
from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter

from awa_django import metrics
from awa_django.conf import get_settings
from awa_django.exposition import Family, Sample
from awa_django.logs import get_logger
from awa_django.worker.django_connections import disconnect

logger = get_logger(__name__)

# Seconds for which one reading serves: all instruments of a collection, and readers that collect together.
FRESH_FOR = 5.0
_SECONDS = "_seconds"


def observe_queue(*, meter: Meter | None = None) -> None:
    """Have each collection of the meter's provider see the queue's gauges, on a connection of Django's.

    To be called once, in one process of the installation, where no worker has a meter provider. Nothing is
    asked of the database now, and at a collection nine statements, on the thread that collects.
    """
    _observe(_Queue(lambda: True, _own_connection), meter or get_meter("awa_django"))


def observe_while_leading(is_leading: Callable[[], bool]) -> None:
    """The same in a worker's own process, which has no connection of Django's before and after."""
    _observe(_Queue(is_leading, _no_connection), get_meter("awa_django"))


def _observe(queue: _Queue, meter: Meter) -> None:
    for family in metrics.gauges(metrics.Reading()):
        meter.create_observable_gauge(
            _spelled(family.name),
            [_observing(queue, family.name)],
            unit="s" if family.name.endswith(_SECONDS) else "",
            description=family.help,
        )


def _observing(queue: _Queue, name: str) -> Callable[[CallbackOptions], list[Observation]]:
    def observe(options: CallbackOptions) -> list[Observation]:  # noqa: ARG001  (the API's signature)
        return [Observation(value, dict(labels)) for _, labels, value in queue.samples(name)]

    return observe


def _spelled(name: str) -> str:
    """OpenTelemetry's spelling, of which an exporter for Prometheus makes the name again."""
    name = name.removesuffix(_SECONDS)
    for prefix in ("awa_queue_", "awa_"):
        if name.startswith(prefix):
            return prefix.replace("_", ".") + name.removeprefix(prefix)
    return name


class _Queue:
    """What was read last, for all instruments; from any thread."""

    def __init__(
        self, is_leading: Callable[[], bool], connected: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._is_leading = is_leading
        self._connected = connected
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._families: dict[str, Family] = {}

    def samples(self, name: str) -> Sequence[Sample]:
        if not self._is_leading():
            return ()
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_FOR:
                self._families = {family.name: family for family in self._read()}
                self._read_at = time.monotonic()
            family = self._families.get(name)
        return () if family is None else family.samples

    def _read(self) -> list[Family]:
        """The gauges now; none, which a chart shows as a gap, when the database does not answer in time."""
        try:
            with self._connected():
                return metrics.gauges(metrics.read())
        except (DatabaseError, InterfaceError) as exc:
            logger.warning("the gauges of the queue cannot be read now: %s", exc)
            return []


@contextmanager
def _own_connection() -> Iterator[None]:
    """The thread that collects may be none of Django's: nobody would close what it opened."""
    connection = connections[get_settings().database]
    was_open = connection.connection is not None
    try:
        yield
    finally:
        if not was_open:
            connection.close()


@contextmanager
def _no_connection() -> Iterator[None]:
    try:
        yield
    finally:
        disconnect()
