"""Health is the age of the last good tick: a loop that dies, hangs or only fails turns it bad."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from errno import EADDRNOTAVAIL, EAFNOSUPPORT
from typing import cast

import pytest

from awa_django.errors import ConfigurationError
from awa_django.worker.child_process import ChildProcess
from awa_django.worker.health import LIVE_WITHIN, READY_WITHIN, Health, HealthServer, Loop, examine
from awa_django.worker.service import Service
from awa_django.worker.slots import Counter
from tests.waiting import wait_until


def health(*loops: Loop, uptime: float = 10_000.0, draining: bool = False, children: int = 1) -> Health:
    return Health("w", uptime, draining, loops, children)


@pytest.mark.parametrize(
    ("age", "ready", "live"),
    [
        (0.0, True, True),
        (READY_WITHIN + 14, True, True),
        (READY_WITHIN + 16, False, True),
        (LIVE_WITHIN + 14, False, True),
        (LIVE_WITHIN + 16, False, False),
        (None, False, False),
    ],
)
def test_age_of_a_loop_decides(age: float | None, ready: bool, live: bool) -> None:
    found = health(Loop("good", 0.0, 1.0), Loop("other", age, 15.0))
    assert (found.is_ready, found.is_live) == (ready, live)
    assert json.loads(found.as_json())["loops"]["other"]["live"] is live


def test_new_worker_is_live_before_its_first_ticks_and_not_ready() -> None:
    found = health(Loop("new", None, 1.0), uptime=2.0)
    assert (found.is_ready, found.is_live) == (False, True)


def test_draining_or_childless_worker_is_not_ready() -> None:
    assert health(Loop("good", 0.0, 1.0)).is_ready
    assert not health(Loop("good", 0.0, 1.0), draining=True).is_ready
    assert not health(Loop("good", 0.0, 1.0), children=0).is_ready


class Ticking(Service):
    """Works, then fails or hangs as told."""

    name = "ticking"
    interval = timedelta(milliseconds=5)

    def __init__(self) -> None:
        super().__init__()
        self.mode = "works"
        self.go_on = threading.Event()

    def tick(self) -> float | None:
        if self.mode == "hangs":
            self.go_on.wait(60)
        if self.mode == "fails":
            raise RuntimeError("as told")
        return None

    def close(self) -> None:
        pass


@pytest.mark.parametrize("mode", ["hangs", "fails", "dies"])
def test_loop_that_does_not_work_grows_old(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("awa_django.worker.health.READY_WITHIN", 0.3)
    service = Ticking()
    service.start()

    def ready() -> bool:
        # A child cannot be had here: its loops are looked at in the tests of whole workers.
        found = examine(
            worker="w", started_at=time.monotonic(), draining=False, services=[service], children=[]
        )
        return all(loop.is_good(0.3) for loop in found.loops)

    try:
        wait_until(ready)
        if mode == "dies":
            service.stop(60)
        else:
            service.mode = mode
        wait_until(lambda: not ready())
        assert not ready()
    finally:
        service.go_on.set()
        service.stop(60)


class ChildOfLongAgo:
    """A child, whose completer ticks, and whose claimer did so last too long ago."""

    name = "child"
    ready = True

    def __init__(self, *, stopping: bool) -> None:
        self.stopping = stopping

    def __getitem__(self, counter: Counter) -> int:
        now = time.monotonic_ns()
        return now if counter == Counter.COMPLETER_TICK_NS else now - int(2e9 * LIVE_WITHIN)


def test_child_that_only_ends_its_jobs_is_no_reason_to_restart_the_worker() -> None:
    """A job of ten minutes in a child that is replaced (--max-memory-per-child) would be the end of it."""

    def look(*, stopping: bool) -> Health:
        child = cast("ChildProcess", ChildOfLongAgo(stopping=stopping))
        return examine(worker="w", started_at=0.0, draining=False, services=[], children=[child])

    assert not look(stopping=False).is_live
    assert look(stopping=True).is_live
    assert not look(stopping=True).is_ready


@pytest.fixture
def server() -> Iterator[tuple[HealthServer, list[Health]]]:
    shown = [health(Loop("good", 0.0, 1.0))]
    server = HealthServer("127.0.0.1:0", lambda: shown[0], lambda: "awa_worker_ready 1\n")
    server.start()
    yield server, shown
    server.stop()


def ask(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()


def test_server_answers_by_health(server: tuple[HealthServer, list[Health]]) -> None:
    serving, shown = server
    assert ask(serving, "/healthz")[0] == ask(serving, "/readyz")[0] == 200
    shown[0] = health(Loop("old", READY_WITHIN + 100, 1.0))
    assert (ask(serving, "/healthz")[0], ask(serving, "/readyz")[0]) == (200, 503)
    shown[0] = health(Loop("old", LIVE_WITHIN + 100, 1.0))
    code, body = ask(serving, "/healthz")
    assert (code, json.loads(body)["loops"]["old"]["live"]) == (503, False)
    assert ask(serving, "/anything")[0] == 404
    assert ask(serving, "/metrics") == (200, "awa_worker_ready 1\n")


def test_server_answers_by_ipv6() -> None:
    try:
        server = HealthServer("[::1]:0", lambda: health(Loop("good", 0.0, 1.0)), str)
    except ConfigurationError as exc:
        if isinstance(exc.__cause__, OSError) and exc.__cause__.errno in (EADDRNOTAVAIL, EAFNOSUPPORT):
            pytest.skip("this machine has no IPv6")
        raise
    server.start()
    with urllib.request.urlopen(f"http://[::1]:{server.port}/healthz", timeout=60) as answer:
        assert answer.status == 200
    server.stop()


@pytest.mark.parametrize(
    "address",
    ["[]:x", "[127.0.0.1]:0", "nowhere", "127.0.0.1:high", "127.0.0.1:99999999", "no.such.host.invalid:1"],
)
def test_unusable_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(ConfigurationError, match="AWA\\['HEALTH'\\] must be a free 'host:port'"):
        HealthServer(address, health, str)


def test_taken_port_is_refused(server: tuple[HealthServer, list[Health]]) -> None:
    with pytest.raises(ConfigurationError, match="must be a free"):
        HealthServer(f"127.0.0.1:{server[0].port}", health, str)
