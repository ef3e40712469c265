"""Probes that ask by HEAD are answered; those that do not wait for their answer leave nothing in the log."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from awa_django.worker.health import Health, HealthServer


class Asked:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def metrics(self) -> str:
        self.asked.set()
        self.may_answer.wait(60)
        return "awa 1\n" * 100


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def server(asked: Asked) -> Iterator[HealthServer]:
    server = HealthServer("127.0.0.1:0", lambda: Health("w", 1.0, False, [], 1), asked.metrics)
    server.start()
    yield server
    server.stop()


def test_head_is_answered_without_a_body(server: HealthServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("HEAD", "/healthz")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 0
    connection.close()


def test_probe_that_hangs_up_is_no_error(
    server: HealthServer, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    errors: list[object] = []
    inner = server._server
    monkeypatch.setattr(inner, "handle_error", lambda *args: errors.append(args))
    shut_down = inner.shutdown_request

    def shut_down_and_tell(request: Any) -> None:
        shut_down(request)
        ended.set()

    monkeypatch.setattr(inner, "shutdown_request", shut_down_and_tell)
    probe = socket.create_connection(("127.0.0.1", server.port))
    probe.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert asked.asked.wait(60)
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not a close
    probe.close()
    asked.may_answer.set()
    assert ended.wait(60)
    assert errors == []
