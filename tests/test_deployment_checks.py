"""What ``manage.py check --deploy`` says of the settings."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import run_checks

from awa_django import job
from awa_django.deployment_checks import check_deployment

pytestmark = pytest.mark.usefixtures("empty_registry")
KEPT = {"CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True}


@pytest.mark.parametrize(
    ("database", "awa", "expected"),
    [
        (KEPT, {}, []),
        ({"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}, {}, []),
        ({}, {}, ["awa.W020"]),
        ({"CONN_MAX_AGE": 60}, {}, ["awa.W021"]),
        ({"OPTIONS": {"pool": True}}, {}, ["awa.W021"]),
        ({"OPTIONS": {"pool": {"max_size": 8}}, "CONN_HEALTH_CHECKS": True}, {}, []),
        (KEPT, {"LISTEN_URL": "postgres://x"}, ["awa.W022"]),
        ({**KEPT, "DISABLE_SERVER_SIDE_CURSORS": True}, {"LISTEN_URL": "postgres://x"}, []),
        (KEPT, {"RETENTION": {"failed": 0}}, ["awa.W024"]),
        (KEPT, {"INLINE": "commit"}, ["awa.W025"]),
    ],
)
def test_risky_settings(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    database: dict[str, object],
    awa: dict[str, object],
    expected: list[str],
) -> None:
    monkeypatch.setitem(settings.DATABASES, "queue", database)
    settings.AWA = {"DATABASE": "queue", **awa}
    assert [message.id for message in check_deployment()] == expected


def test_handlers_without_a_timeout(settings: Any) -> None:
    settings.AWA = {}

    @job(kind="tests.deploy.bounded", timeout=5)
    def bounded() -> None: ...

    assert "awa.W023" not in [message.id for message in check_deployment()]

    @job(kind="tests.deploy.unbounded")
    def unbounded() -> None: ...

    [message] = [message for message in check_deployment() if message.id == "awa.W023"]
    assert "1 kinds have no timeout, 'tests.deploy.unbounded' for one" in message.msg
    settings.AWA = {"TIMEOUT": timedelta(minutes=5)}
    assert "awa.W023" not in [message.id for message in check_deployment()]


def test_they_are_for_deploy_only(settings: Any) -> None:
    settings.AWA = {"RETENTION": {"failed": 0}}
    said = [
        {message.id for message in run_checks(include_deployment_checks=deploy)} for deploy in (False, True)
    ]
    assert ["awa.W024" in ids for ids in said] == [False, True]
