from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.core.checks import run_checks

from awa_django import Unique, job, periodic
from awa_django.checks import check_caches, check_database, check_declarations, check_time_zone
from awa_django.router import AwaRouter

if TYPE_CHECKING:
    from decimal import Decimal


pytestmark = pytest.mark.usefixtures("empty_registry")


def ids(messages: Any) -> list[str]:
    return [message.id for message in messages]


def test_good_project_has_nothing_to_say() -> None:
    @periodic("@daily", args={"count": 1})
    @job(kind="tests.checks.good")
    def good(count: int) -> None: ...

    assert [message for message in run_checks() if message.id and message.id.startswith("awa.")] == []


def test_unknown_alias_is_an_error(settings: Any) -> None:
    settings.AWA = {"DATABASE": "nowhere"}
    [message] = check_database()
    assert message.id == "awa.E001"
    assert "nowhere" in message.msg
    assert message.hint is not None
    assert "default" in message.hint


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("django.db.backends.sqlite3", ["awa.E002", "awa.W002", "awa.W001"]),
        ("django.db.backends.postgresql", ["awa.W002", "awa.W001"]),
    ],
)
def test_alias_must_be_postgresql_and_another_than_default_is_warned_of(
    settings: Any, monkeypatch: pytest.MonkeyPatch, engine: str, expected: list[str]
) -> None:
    monkeypatch.setitem(settings.DATABASES, "queue", {"ENGINE": engine, "NAME": "x"})
    settings.AWA = {"DATABASE": "queue"}
    monkeypatch.setattr("awa_django.checks.connections", {"queue": Fake(engine.rsplit(".", 1)[1])})
    assert ids(check_database()) == expected


def test_naive_instants_are_an_error(settings: Any) -> None:
    assert check_time_zone() == []
    settings.USE_TZ = False
    [message] = check_time_zone()
    assert message.id == "awa.E007"
    assert "awa.E007" in ids(run_checks())


class RouterTo:
    """Sends the models of some apps (of all, without any) to an alias."""

    def __init__(self, alias: str, *labels: str) -> None:
        self.alias, self.labels = alias, labels

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        return self.alias if not self.labels or model._meta.app_label in self.labels else None


@pytest.mark.parametrize(
    ("alias", "routers", "expected"),
    [
        ("default", [], []),
        ("default", [RouterTo("queue", "shop")], []),
        ("default", [AwaRouter(), RouterTo("queue")], ["awa.W001"]),
        ("default", [RouterTo("queue", "awa")], ["awa.W002"]),
        ("queue", [AwaRouter()], ["awa.W001"]),
        ("queue", [AwaRouter(), RouterTo("queue", "shop")], ["awa.W001"]),
        ("queue", [RouterTo("queue")], []),
    ],
)
def test_where_models_live_and_routers_lead(
    settings: Any, monkeypatch: pytest.MonkeyPatch, alias: str, routers: list[Any], expected: list[str]
) -> None:
    monkeypatch.setitem(settings.DATABASES, "queue", {"ENGINE": "django.db.backends.postgresql"})
    monkeypatch.setattr(
        "awa_django.checks.connections", dict.fromkeys(("default", "queue"), Fake("postgresql"))
    )
    settings.AWA = {"DATABASE": alias}
    settings.DATABASE_ROUTERS = routers
    assert ids(check_database()) == expected


def test_a_router_that_lets_no_table_be_made_where_the_queue_is(settings: Any) -> None:
    class NotHere:
        def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
            return False if app_label == "awa" else None

    settings.DATABASE_ROUTERS = [NotHere()]
    [message] = check_database()
    assert message.id == "awa.W002"
    assert "'default', where the routers let this app not be migrated" in message.msg


@pytest.mark.parametrize(
    ("names", "warned"),
    [
        ({}, True),
        ({"CACHALOT_UNCACHABLE_APPS": ("awa",)}, False),
        ({"CACHALOT_ONLY_CACHABLE_APPS": ("shop",)}, False),
        ({"CACHALOT_ONLY_CACHABLE_APPS": ("shop", "awa")}, True),
        ({"CACHALOT_ENABLED": False}, False),
    ],
)
def test_a_cache_of_every_query_leaves_the_queue_out(
    settings: Any, monkeypatch: pytest.MonkeyPatch, names: dict[str, Any], warned: bool
) -> None:
    assert check_caches() == []
    monkeypatch.setattr("awa_django.checks.apps.is_installed", lambda name: name == "cachalot")
    for name, value in names.items():
        setattr(settings, name, value)
    assert ids(check_caches()) == (["awa.W004"] if warned else [])


def test_the_apps_whose_models_live_elsewhere_are_named(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.DATABASES, "queue", {"ENGINE": "django.db.backends.postgresql"})
    monkeypatch.setattr("awa_django.checks.connections", {"queue": Fake("postgresql")})
    settings.AWA = {"DATABASE": "queue"}
    settings.DATABASE_ROUTERS = [AwaRouter(), RouterTo("queue", "shop")]
    [message] = check_database()
    assert "'queue', and the models of admin, auth, contenttypes, sessions are not" in message.msg


class Fake:
    def __init__(self, vendor: str) -> None:
        self.vendor = vendor


def test_annotation_that_cannot_be_resolved_is_an_error() -> None:
    @job(kind="tests.checks.unresolved")
    def unresolved(amount: Decimal) -> None: ...

    [message] = check_declarations()
    assert message.id == "awa.E003"
    assert "'amount' of 'tests.checks.unresolved'" in message.msg


def test_periodic_arguments_that_cannot_be_stored_are_an_error() -> None:
    @periodic("@daily", args={"count": "many"}, name="nightly")
    @job(kind="tests.checks.periodic")
    def counted(count: int) -> None: ...

    [message] = check_declarations()
    assert message.id == "awa.E004"
    assert "periodic job 'nightly': argument 'count'" in message.msg


def test_key_that_the_fires_of_a_schedule_cannot_have_is_an_error() -> None:
    @periodic("@daily", name="daily")
    @job(kind="tests.checks.unique", unique=Unique())
    def declared() -> None: ...

    @periodic("@daily", name="nightly")
    @job(kind="tests.checks.keyless", unique=Unique(args=lambda args: args["nothing"]))
    def keyless() -> None: ...

    [message] = check_declarations()
    assert message.id == "awa.E004"
    assert "periodic job 'nightly': the key function of 'tests.checks.keyless' failed" in message.msg
