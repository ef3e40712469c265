"""A Sentry that keeps what it would send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.client import NonRecordingClient
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport


class Collector(Transport):
    """Keeps what would be sent."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.sent: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.sent += [item.payload.json or {} for item in envelope.items]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [each for each in self.sent if each.get("type") not in ("transaction", "check_in")]

    @property
    def transactions(self) -> list[dict[str, Any]]:
        return [each for each in self.sent if each.get("type") == "transaction"]

    @property
    def check_ins(self) -> list[dict[str, Any]]:
        return [each for each in self.sent if each.get("type") == "check_in"]


Start = Callable[..., Collector]


@pytest.fixture
def start() -> Iterator[Start]:
    """``start(**options)`` is the transport of a client; nothing of Python or Django is patched."""

    def start(**options: Any) -> Collector:
        collector = Collector()
        client = sentry_sdk.Client(
            dsn="http://key@127.0.0.1/1",
            transport=collector,
            default_integrations=False,
            auto_enabling_integrations=False,
            **options,
        )
        sentry_sdk.get_global_scope().set_client(client)
        return collector

    yield start
    sentry_sdk.get_global_scope().set_client(NonRecordingClient())
