"""Which aliases the migrations take for the queue's own."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.utils import ConnectionHandler

from awa_django.migrations import _queue_alias

SITE = {"ENGINE": "django.db.backends.postgresql", "NAME": "site", "HOST": "db", "PORT": "5432"}


def leads_to_queue(
    monkeypatch: pytest.MonkeyPatch, settings: Any, queue: dict[str, Any], test_name: str = ""
) -> bool:
    """Whether ``default`` does, or its test database of that name."""
    settings.AWA = {"DATABASE": "queue"}
    connections = ConnectionHandler({"default": dict(SITE), "queue": {**SITE, **queue}})
    monkeypatch.setattr(_queue_alias, "connections", connections)
    assert _queue_alias.leads_to_queue(connections["queue"])
    if test_name:  # as create_test_db does
        connections["default"].settings_dict["NAME"] = test_name
    return _queue_alias.leads_to_queue(connections["default"])


@pytest.mark.parametrize(
    "queue", [{}, {"USER": "worker"}, {"OPTIONS": {"application_name": "queue"}}], ids=str
)
@pytest.mark.parametrize("test_name", ["", "test_site"])
def test_alias_with_the_same_address_leads_to_the_queue(
    monkeypatch: pytest.MonkeyPatch, settings: Any, queue: dict[str, Any], test_name: str
) -> None:
    assert leads_to_queue(monkeypatch, settings, queue, test_name)


@pytest.mark.parametrize(
    "queue",
    [{"NAME": "queue"}, {"HOST": "other"}, {"PORT": "6432"}, {"OPTIONS": {"service": "other"}}],
    ids=str,
)
@pytest.mark.parametrize("test_name", ["", "test_site"])
def test_alias_with_another_address_does_not(
    monkeypatch: pytest.MonkeyPatch, settings: Any, queue: dict[str, Any], test_name: str
) -> None:
    assert not leads_to_queue(monkeypatch, settings, queue, test_name)


@pytest.mark.parametrize(("test_name", "leads"), [("", False), ("test_site", True)])
def test_mirror_of_tests_leads_to_the_queue_in_tests_only(
    monkeypatch: pytest.MonkeyPatch, settings: Any, test_name: str, leads: bool
) -> None:
    mirror = {"PORT": "6432", "TEST": {"MIRROR": "default"}}
    assert leads_to_queue(monkeypatch, settings, mirror, test_name) == leads


def test_sqlite_never_leads_to_the_queue(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.AWA = {"DATABASE": "default"}
    connections = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site"}})
    monkeypatch.setattr(_queue_alias, "connections", connections)
    assert not _queue_alias.leads_to_queue(connections["default"])
