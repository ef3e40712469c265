from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from awa_django.conf import AwaSettings, PeriodicSetting, get_settings
from awa_django.errors import ConfigurationError
from awa_django.retry import Fixed


def test_defaults_hold_without_the_setting(settings: Any) -> None:
    del settings.AWA
    assert get_settings() == AwaSettings()
    assert get_settings().heartbeat_interval == timedelta(seconds=30)


def test_setting_is_read_again_when_it_changes(settings: Any) -> None:
    settings.AWA = {"DATABASE": "queue"}
    assert get_settings().database == "queue"
    assert get_settings() is get_settings()
    settings.AWA = {"DATABASE": "other"}
    assert get_settings().database == "other"


def test_durations_are_timedeltas_or_seconds(settings: Any) -> None:
    settings.AWA = {"TIMEOUT": 1.5, "POLL_INTERVAL": timedelta(minutes=1), "SWEEP_INTERVAL": 7}
    read = get_settings()
    assert (read.timeout, read.poll_interval, read.sweep_interval) == (
        timedelta(seconds=1.5),
        timedelta(minutes=1),
        timedelta(seconds=7),
    )


def test_every_attribute_is_a_key(settings: Any) -> None:
    settings.AWA = {
        "DATABASE": "default",
        "QUEUES": ["mail"],
        "RETENTION": {},
        "MAX_ATTEMPTS": 3,
        "RETRY": Fixed(),
        "TIMEOUT": None,
        "HEARTBEAT_INTERVAL": 1,
        "STALE_AFTER": 3,
        "SWEEP_INTERVAL": 1,
        "POLL_INTERVAL": 1,
        "PROMOTE_INTERVAL": 1,
        "SHUTDOWN_TIMEOUT": 1,
        "LISTEN_URL": "postgres://x",
        "MAX_ARGS_BYTES": 100,
        "IMPORTS": ["shop.handlers"],
        "SKIP_IMPORTS": ["defender.tasks"],
        "REDACT": ["iban"],
        "HEALTH": "127.0.0.1:8001",
        "DRAIN_TARGET": 30,
        "METRICS_TOKEN": "x",
        "BULK_QUEUE": "seldom",
        "ADMIN_STATEMENT_TIMEOUT": 2,
        "PERIODIC": {},
        "MIDDLEWARE": [],
        "CARRY": ["language"],
        "INLINE": "commit",
    }
    assert {key.lower() for key in settings.AWA} == set(AwaSettings.__dataclass_fields__)
    read = get_settings()
    assert (read.queues, read.imports, read.redact) == (("mail",), ("shop.handlers",), ("iban",))
    assert (read.retry, read.max_attempts, read.health) == (Fixed(), 3, "127.0.0.1:8001")


def test_retention_is_by_queue_then_by_state_then_the_default(settings: Any) -> None:
    settings.AWA = {"RETENTION": {"completed": 60, "queues": {"mail": {"completed": 0, "failed": 5}}}}
    retention = get_settings().retention
    assert retention.of("mail", "completed") == timedelta(0)
    assert retention.of("mail", "failed") == timedelta(seconds=5)
    assert retention.of("mail", "cancelled") == timedelta(days=7)
    assert retention.of("other", "completed") == timedelta(seconds=60)
    assert retention.of("other", "failed") == timedelta(days=7)


def test_retry_may_be_a_dict(settings: Any) -> None:
    settings.AWA = {"RETRY": {"policy": "fixed", "wait": 9}}
    assert get_settings().retry == Fixed(wait=9)


def test_unknown_key_names_the_nearest(settings: Any) -> None:
    settings.AWA = {"HEARTBEAT": 5}
    with pytest.raises(ConfigurationError, match=r"no key 'HEARTBEAT': did you mean 'HEARTBEAT_INTERVAL'"):
        get_settings()
    settings.AWA = {"database": "x"}
    with pytest.raises(ConfigurationError, match="did you mean 'DATABASE'"):
        get_settings()


@pytest.mark.parametrize("key", ["COLOUR", 7])
def test_unknown_key_like_no_other_is_told_which_there_are(settings: Any, key: object) -> None:
    settings.AWA = {key: "x"}
    with pytest.raises(ConfigurationError, match=rf"no key {key!r}: there are .*DATABASE, .*TIMEOUT"):
        get_settings()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("DATABASE", ""),
        ("DATABASE", None),
        ("QUEUES", "mail"),
        ("QUEUES", [""]),
        ("QUEUES", 5),
        ("RETENTION", 60),
        ("RETENTION", {"done": 60}),
        ("RETENTION", {"completed": -1}),
        ("RETENTION", {"queues": ["mail"]}),
        ("RETENTION", {"queues": {"mail": 5}}),
        ("RETENTION", {"queues": {"mail": {"running": 5}}}),
        ("MAX_ATTEMPTS", 0),
        ("MAX_ATTEMPTS", True),
        ("MAX_ATTEMPTS", 1001),
        ("RETRY", 5),
        ("RETRY", Fixed),
        ("TIMEOUT", 0),
        ("HEARTBEAT_INTERVAL", "30"),
        ("LISTEN_URL", 5),
        ("MAX_ARGS_BYTES", 1),
        ("HEALTH", 8001),
    ],
    ids=repr,
)
def test_wrong_value_is_refused_by_key(settings: Any, key: str, value: Any) -> None:
    settings.AWA = {key: value}
    with pytest.raises(ConfigurationError, match=rf"AWA\['{key}'\]"):
        get_settings()


def test_bad_stored_policy_is_refused(settings: Any) -> None:
    settings.AWA = {"RETRY": {"policy": "none"}}
    with pytest.raises(ConfigurationError, match="unknown retry policy"):
        get_settings()


def test_setting_must_be_a_dict(settings: Any) -> None:
    settings.AWA = ["DATABASE"]
    with pytest.raises(ConfigurationError, match="AWA must be a dict"):
        get_settings()


def test_stale_after_leaves_room_for_a_late_heartbeat(settings: Any) -> None:
    settings.AWA = {"HEARTBEAT_INTERVAL": 50}
    with pytest.raises(ConfigurationError, match="STALE_AFTER"):
        get_settings()


def test_schedules_are_read_by_name(settings: Any) -> None:
    settings.AWA = {
        "PERIODIC": {
            "nightly": {
                "job": "shop.report",
                "cron": "0 3 * * *",
                "timezone": "Europe/Madrid",
                "args": {"n": 1},
                "missed": "catch_up",
                "catch_up_limit": 5,
            },
            "hourly": {"job": "shop.tidy", "cron": "@hourly"},
        }
    }
    read = get_settings().periodic
    assert read["nightly"].args == {"n": 1}
    assert (read["nightly"].missed, read["nightly"].catch_up_limit) == ("catch_up", 5)
    assert read["hourly"] == PeriodicSetting(name="hourly", job="shop.tidy", cron="@hourly")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], r"AWA\['PERIODIC'\] must be a dict"),
        ({"": {"job": "j", "cron": "@daily"}}, "name of a schedule"),
        ({"n" * 201: {"job": "j", "cron": "@daily"}}, "name of a schedule"),
        ({"x": "@daily"}, r"\['x'\] must be a dict"),
        ({"x": {"job": "j", "cron": "@daily", "zone": "UTC"}}, "no key 'zone'"),
        ({"x": {"cron": "@daily"}}, r"\['x'\]\['job'\]"),
        ({"x": {"job": "j"}}, r"\['x'\]\['cron'\]"),
        ({"x": {"job": "j", "cron": "61 * * * *"}}, r"\['x'\]: cron expression '61"),
        ({"x": {"job": "j", "cron": "0 0 31 2 *"}}, r"\['x'\]: cron expression"),
        ({"x": {"job": "j", "cron": "@daily", "timezone": "Mars"}}, "no time zone 'Mars'"),
        ({"x": {"job": "j", "cron": "@daily", "timezone": None}}, r"\['timezone'\]"),
        ({"x": {"job": "j", "cron": "@daily", "args": [1]}}, r"\['args'\] must be a dict"),
        ({"x": {"job": "j", "cron": "@daily", "missed": "all"}}, "missed must be one of coalesce, skip"),
        ({"x": {"job": "j", "cron": "@daily", "catch_up_limit": 0}}, "catch_up_limit must be"),
        ({"x": {"job": "j", "cron": "@daily", "catch_up_limit": 1001}}, "catch_up_limit must be"),
    ],
)
def test_wrong_schedule_is_refused_by_name(settings: Any, value: Any, why: str) -> None:
    settings.AWA = {"PERIODIC": value}
    with pytest.raises(ConfigurationError, match=why):
        get_settings()
