"""Health over HTTP: whether each loop of a worker really works, by the age of its last good tick.

``/healthz`` says whether the worker should be restarted, ``/readyz`` whether it does its work now. Both
answer 200 or 503, with the ages of all loops as JSON. They are not made of flags: a loop that died,
hangs, or only fails grows old.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from awa_django.errors import ConfigurationError
from awa_django.exposition import CONTENT_TYPE
from awa_django.worker.child_process import ChildProcess
from awa_django.worker.service import Service
from awa_django.worker.slots import Counter

# Seconds. A database that is away for minutes is ridden out: a restart would not bring it back.
LIVE_WITHIN = 300.0
READY_WITHIN = 30.0


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: seconds since its last good tick (None: none yet), and how many it may take by its nature."""

    name: str
    age: float | None
    interval: float

    def is_good(self, within: float) -> bool:
        """Whether it is not silent for longer than its interval and ``within``."""
        return self.age is not None and self.age <= self.interval + within


@dataclass(frozen=True, slots=True)
class Health:
    """What the loops of one worker show at one instant."""

    worker: str
    uptime: float
    draining: bool
    loops: Sequence[Loop]
    children_ready: int

    @property
    def is_live(self) -> bool:
        """Whether no loop is silent for too long; a loop that has not begun has the same time for it."""
        return all(loop.is_good(LIVE_WITHIN) or self._is_new(loop, LIVE_WITHIN) for loop in self.loops)

    @property
    def is_ready(self) -> bool:
        """Whether jobs are claimed and written now."""
        return (
            not self.draining
            and self.children_ready > 0
            and all(loop.is_good(READY_WITHIN) for loop in self.loops)
        )

    def as_json(self) -> str:
        loops = {
            loop.name: {
                "age": None if loop.age is None else round(loop.age, 3),
                "ready": loop.is_good(READY_WITHIN),
                "live": loop.is_good(LIVE_WITHIN) or self._is_new(loop, LIVE_WITHIN),
            }
            for loop in self.loops
        }
        return json.dumps(
            {
                "worker": self.worker,
                "uptime": round(self.uptime, 1),
                "live": self.is_live,
                "ready": self.is_ready,
                "draining": self.draining,
                "children_ready": self.children_ready,
                "loops": loops,
            }
        )

    def _is_new(self, loop: Loop, within: float) -> bool:
        return loop.age is None and self.uptime <= loop.interval + within


def examine(
    *,
    worker: str,
    started_at: float,
    draining: bool,
    services: Iterable[Service],
    children: Iterable[ChildProcess],
) -> Health:
    """Look at every loop of a supervisor and of its children; ``started_at`` is monotonic seconds."""
    now = time.monotonic()
    loops = [
        Loop(
            service.name,
            None if service.last_good_tick is None else now - service.last_good_tick,
            service.longest_tick,
        )
        for service in services
    ]
    ready = 0
    for child in children:
        ready += child.ready and not child.stopping
        for name, counter in (("claimer", Counter.CLAIMER_TICK_NS), ("completer", Counter.COMPLETER_TICK_NS)):
            if child.stopping and counter == Counter.CLAIMER_TICK_NS:
                continue  # it claims no more, however long what it runs may take
            ticked = child[counter]
            age = now - ticked / 1e9 if ticked else None
            loops.append(Loop(f"{name} of {child.name}", age, 0.0))
    return Health(worker, now - started_at, draining, loops, ready)


class _ServerV6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class HealthServer:
    """Serves the health of one worker on ``host:port``, or ``[host]:port`` of IPv6."""

    def __init__(self, address: str, look: Callable[[], Health], measure: Callable[[], str]) -> None:
        """Raises: ConfigurationError when the address is none, or taken."""
        host, _, port = address.rpartition(":")
        is_v6 = host.startswith("[") and host.endswith("]")
        server = _ServerV6 if is_v6 else ThreadingHTTPServer
        host = host[1:-1] if is_v6 else host
        try:
            self._server = server((host or "127.0.0.1", int(port)), _handler(look, measure))
        except (OSError, ValueError, OverflowError) as exc:
            raise ConfigurationError(
                f"AWA['HEALTH'] must be a free 'host:port', not {address!r}: {exc}"
            ) from exc
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, name="awa-health", daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def _handler(look: Callable[[], Health], measure: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that says nothing holds its thread no longer

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # a probe that did not wait for its answer
                super().handle()

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, CONTENT_TYPE, measure())
                return
            health = look()
            good = {"/healthz": health.is_live, "/readyz": health.is_ready}.get(self.path)
            if good is None:
                self.send_error(404, "only /healthz, /readyz and /metrics are served")
                return
            self._answer(200 if good else 503, "application/json", health.as_json())

        def _answer(self, status: int, content_type: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
            pass  # probes come every few seconds

    return Handler
