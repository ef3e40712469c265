from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from awa_django import registry
from awa_django.binding import Signature
from awa_django.errors import ConfigurationError, UnknownJobKind
from awa_django.handler import Handler, PeriodicJob
from awa_django.retry import Exponential, Fixed

pytestmark = pytest.mark.usefixtures("empty_registry")


def one(order_id: int = 1) -> None: ...


def two() -> None: ...


def handler(kind: str, function: Callable[..., object] = one, **options: Any) -> Handler:
    return Handler(
        kind=kind, function=function, signature=Signature(function, kind=kind, takes_context=False), **options
    )


def test_handler_is_found_by_kind_and_alias() -> None:
    made = registry.register(handler("shop.one", aliases=("old.one",)))
    assert registry.get("shop.one") is registry.get("old.one") is made
    assert registry.kinds() == ["old.one", "shop.one"]
    assert registry.handlers() == [made]


def test_unknown_kind_is_none_or_an_error_with_the_kind() -> None:
    assert registry.find("x") is None
    with pytest.raises(UnknownJobKind) as caught:
        registry.get("x")
    assert caught.value.kind == "x"


@pytest.mark.parametrize("options", [{"kind": "a"}, {"kind": "old"}, {"kind": "b", "aliases": ("a",)}])
def test_second_function_of_a_kind_is_refused_naming_both(options: dict[str, Any]) -> None:
    registry.register(handler("a", one, aliases=("old",)))
    with pytest.raises(ConfigurationError, match=r"test_registry\.one and .*test_registry\.two"):
        registry.register(handler(function=two, **options))
    assert registry.kinds() == ["a", "old"]


def test_function_loaded_anew_replaces_its_older_self() -> None:
    registry.register(handler("a", aliases=("gone",)))
    newer = registry.register(handler("a"))
    assert registry.get("a") is newer
    assert registry.find("gone") is None


def test_function_of_two_kinds_is_known_by_both() -> None:
    first, second = (registry.register(handler(kind, aliases=(f"old.{kind}",))) for kind in ("a", "b"))
    assert registry.handlers() == [first, second]
    registry.register_periodic(periodic("p", first))
    # Its module is loaded anew: each takes the place of the older self that has its name.
    newer = registry.register(handler("b"))
    assert registry.handlers() == [first, newer]
    assert registry.kinds() == ["a", "b", "old.a"]
    assert [job.handler for job in registry.periodic_jobs()] == [first]


def test_handlers_made_by_one_function_are_known_by_all_their_kinds() -> None:
    def make(kind: str) -> Handler:
        def run() -> None: ...

        return registry.register(handler(kind, run))

    made = [make("a"), make("b")]
    assert registry.handlers() == made


def test_function_under_a_new_kind_that_keeps_the_old_one_as_alias_replaces_it() -> None:
    registry.register(handler("a", aliases=("older",)))
    renamed = registry.register(handler("b", aliases=("a",)))
    assert registry.kinds() == ["a", "b"]
    assert registry.get("a") is registry.get("b") is renamed


def test_queues_are_those_of_the_handlers() -> None:
    registry.register(handler("a", one, queue="mail"))
    registry.register(handler("b", two))
    assert registry.queues() == ["default", "mail"]


def test_undeclared_values_are_the_settings(settings: Any) -> None:
    made = handler("a")
    assert (made.max_attempts, made.retry, made.timeout) == (25, Exponential(), None)
    settings.AWA = {"MAX_ATTEMPTS": 3, "RETRY": Fixed(), "TIMEOUT": 9}
    assert (made.max_attempts, made.retry, made.timeout) == (3, Fixed(), timedelta(seconds=9))
    own = handler(
        "b", declared_max_attempts=4, declared_retry=Fixed(wait=1), declared_timeout=timedelta(seconds=1)
    )
    assert (own.max_attempts, own.retry, own.timeout) == (4, Fixed(wait=1), timedelta(seconds=1))


def periodic(name: str, made: Handler) -> PeriodicJob:
    return PeriodicJob(name=name, cron_expr="@daily", timezone="UTC", handler=made, arguments={"order_id": 2})


def test_periodic_job_takes_its_options_from_the_handler() -> None:
    made = periodic("p", handler("a", queue="mail", priority=1, declared_max_attempts=2, tags=("t",)))
    assert (made.kind, made.queue, made.priority, made.max_attempts, made.tags) == ("a", "mail", 1, 2, ("t",))
    assert made.encode() == '{"order_id":2}'


def test_second_periodic_job_of_a_name_is_refused() -> None:
    made = handler("a")
    registry.register_periodic(periodic("p", made))
    registry.register_periodic(periodic("q", made))
    for other in (made, handler("b", two)):
        with pytest.raises(ConfigurationError, match="periodic job 'p' is declared twice"):
            registry.register_periodic(periodic("p", other))
    assert [job.name for job in registry.periodic_jobs()] == ["p", "q"]


def test_unregister_forgets_the_schedules_too() -> None:
    made = registry.register(handler("a", aliases=("b",)))
    registry.register_periodic(periodic("p", made))
    registry.unregister(made)
    assert registry.kinds() == []
    assert registry.periodic_jobs() == []


def test_discover_imports_the_modules_of_the_setting(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "awa_imported_here.py").write_text("LOADED = True")
    monkeypatch.syspath_prepend(tmp_path)
    settings.AWA = {"IMPORTS": ["awa_imported_here"]}
    registry.discover()
    assert sys.modules.pop("awa_imported_here").LOADED


@pytest.mark.parametrize("text", ["import not_there_at_all", "1 / 0", "def"])
def test_import_error_is_loud_and_names_the_module(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "awa_broken_here.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    settings.AWA = {"IMPORTS": ["awa_broken_here"]}
    with pytest.raises(ConfigurationError, match="cannot import awa_broken_here") as caught:
        registry.discover()
    assert caught.value.__cause__ is not None


def make_app(directory: Path, **modules: str) -> None:
    """A package of these modules, each with this code."""
    directory.mkdir()
    for name, code in {"__init__": "", **modules}.items():
        (directory / f"{name}.py").write_text(code)


def test_tasks_of_another_queue_are_left_out_when_asked(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed app may have tasks of Celery, where there is no Celery."""
    make_app(tmp_path / "awa_guest_here", tasks="import celery_is_not_here", jobs="LOADED = True")
    monkeypatch.syspath_prepend(tmp_path)
    installed = [*settings.INSTALLED_APPS, "awa_guest_here"]
    with pytest.raises(ConfigurationError, match=r"awa_guest_here\.tasks.*celery_is_not.*SKIP_IMPORTS"):
        settings.INSTALLED_APPS = installed
    settings.AWA = {"SKIP_IMPORTS": ["awa_guest_here.tasks"]}
    settings.INSTALLED_APPS = installed
    assert sys.modules.pop("awa_guest_here.jobs").LOADED


def test_discover_imports_tasks_and_jobs_of_an_installed_app(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_app(tmp_path / "awa_app_here", tasks="", jobs="import awa_app_here.tasks")
    monkeypatch.syspath_prepend(tmp_path)
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "awa_app_here"]
    registry.discover()
    assert {name for name in sys.modules if name.startswith("awa_app_here")} == {
        "awa_app_here",
        "awa_app_here.tasks",
        "awa_app_here.jobs",
    }


def test_settings_declare_schedules_of_known_jobs(settings: Any) -> None:
    made = registry.register(handler("a", aliases=("old",)))
    registry.register_periodic(periodic("m", made))
    entry = {
        "job": "old",
        "cron": "@hourly",
        "timezone": "Asia/Tokyo",
        "args": {"order_id": 7},
        "missed": "skip",
    }
    settings.AWA = {"PERIODIC": {"z": entry, "b": {"job": "a", "cron": "*/10 * * * * *"}}}
    first, second, third = registry.periodic_jobs()
    assert [first.name, second.name, third.name] == ["b", "m", "z"]
    assert (third.handler, third.cron_expr, third.timezone, third.missed) == (
        made,
        "@hourly",
        "Asia/Tokyo",
        "skip",
    )
    assert third.encode() == '{"order_id":7}'


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"m": {"job": "a", "cron": "@daily"}}, "name of a schedule that .*one declares"),
        ({"x": {"job": "nobody", "cron": "@daily"}}, "the job 'nobody', which no handler has"),
        ({"x": {"job": "a", "cron": "@daily", "args": {"n": 1}}}, r"\['x'\].*'n'"),
    ],
)
def test_setting_that_fits_no_job_is_refused(settings: Any, entry: dict[str, Any], why: str) -> None:
    registry.register_periodic(periodic("m", registry.register(handler("a"))))
    settings.AWA = {"PERIODIC": entry}
    with pytest.raises(ConfigurationError, match=why):
        registry.periodic_jobs()
