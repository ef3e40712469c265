"""Fixtures for tests that declare handlers: what they declare is gone when they end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from awa_django import registry


@pytest.fixture
def registered() -> Iterator[None]:
    """Handlers that a test declares are forgotten after it."""
    before = registry.handlers()
    yield
    for handler in registry.handlers():
        if handler not in before:
            registry.unregister(handler)


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No handler and no schedule but those that the test declares, which are forgotten after it."""
    for name in ("_handlers", "_by_alias", "_periodic"):
        monkeypatch.setattr(registry, name, {})
