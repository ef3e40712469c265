"""What @job and @periodic accept and refuse; nothing here is enqueued."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from awa_django import (
    ConfigurationError,
    Exponential,
    Fixed,
    InvalidJob,
    JobContext,
    Unique,
    job,
    periodic,
    registry,
)
from awa_django.enqueue.options import prepare
from awa_django.jobs.declare import default_kind
from tests.param_ids import named

pytestmark = pytest.mark.usefixtures("empty_registry")


def send_receipt(order_id: int, to: str = "") -> str:
    """Send it."""
    return f"{order_id} {to}"


def in_module(module: str) -> Callable[..., object]:
    def function() -> None: ...

    function.__module__ = module
    function.__name__ = "send"
    return function


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("shop.tasks", "shop.send"),
        ("shop.jobs", "shop.send"),
        ("project.shop.tasks", "shop.send"),
        ("project.apps.shop.tasks.mail", "shop.mail.send"),
        ("project.shop.services", "shop.services.send"),
        ("shop", "shop.send"),
        ("tasks", "tasks.send"),
        ("jobs.tasks", "jobs.send"),
    ],
)
def test_kind_is_package_and_function(module: str, kind: str) -> None:
    assert default_kind(in_module(module)) == kind


def test_job_is_still_its_function() -> None:
    made = job(send_receipt)
    assert made(1, to="a") == "1 a"
    assert made.__name__ == "send_receipt"
    assert made.__doc__ == "Send it."
    assert registry.get("unit.test_jobs.send_receipt") is made.handler
    assert repr(made) == "<Job unit.test_jobs.send_receipt>"


def test_declaration_is_what_the_registry_has() -> None:
    unique = Unique(args=("order_id",))
    handler = job(
        kind="mail.receipt",
        queue="mail",
        priority=1,
        max_attempts=3,
        retry=Fixed(),
        timeout=5,
        unique=unique,
        tags=["a"],
        atomic=True,
        keep_result=True,
        aliases=["old.receipt"],
    )(send_receipt).handler
    assert (handler.kind, handler.queue, handler.priority, handler.max_attempts) == (
        "mail.receipt",
        "mail",
        1,
        3,
    )
    assert (handler.retry, handler.timeout, handler.unique) == (Fixed(), timedelta(seconds=5), unique)
    assert (handler.tags, handler.aliases) == (("a",), ("old.receipt",))
    assert handler.atomic
    assert handler.keep_result
    assert not handler.is_async
    assert not handler.takes_context
    assert registry.get("old.receipt") is handler


def test_async_handler_is_known_as_such() -> None:
    async def handler() -> None: ...

    assert job(handler).handler.is_async


def test_context_is_passed_in_a_direct_call_only() -> None:
    @job(takes_context=True)
    def handler(context: JobContext, order_id: int) -> int:
        return context.attempt + order_id

    context = JobContext(job_id=1, kind="k", queue="q", attempt=2, max_attempts=3, run_lease=1)
    assert handler(context, 5) == 7
    assert handler.item(5).arguments == {"order_id": 5}
    assert handler.using(priority=1)(context, 5) == 7
    assert handler.handler.takes_context


@pytest.mark.parametrize(
    "options",
    [
        {"kind": ""},
        {"kind": "k" * 201},
        {"kind": 5},
        {"queue": ""},
        {"queue": "a\x00"},
        {"priority": 0},
        {"priority": 5},
        {"priority": True},
        {"max_attempts": 0},
        {"max_attempts": 1001},
        {"retry": Exponential},
        {"retry": 5},
        {"retry": asyncio.sleep},
        {"retry_on": "ValueError"},
        {"retry_on": [ValueError()]},
        {"discard_on": BaseException},
        {"discard_on": None},
        {"timeout": 0},
        {"timeout": "5"},
        {"unique": True},
        {"unique": Unique(args=("nope",))},
        {"tags": "a"},
        {"tags": ["a"] * 21},
        {"tags": [5]},
        {"aliases": "old"},
        {"aliases": [""]},
    ],
    ids=named,
)
def test_wrong_declaration_is_refused_naming_the_function(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"@job on .*send_receipt"):
        job(**options)(send_receipt)
    assert registry.handlers() == []


def test_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="no option retries"):
        job(retries=5)(send_receipt)  # type: ignore[call-overload]


def test_what_is_no_plain_function_is_refused() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for function in (generator, async_generator, int, len, job(send_receipt)):
        with pytest.raises(ConfigurationError, match=r"@job on|@job goes on a function"):
            job(function)


def test_atomic_async_handler_is_refused() -> None:
    async def handler() -> None: ...

    with pytest.raises(ConfigurationError, match="atomic=True needs a sync handler"):
        job(atomic=True)(handler)


def test_using_keeps_earlier_options_and_leaves_the_job_alone() -> None:
    made = job(send_receipt)
    later = made.using(priority=1).using(queue="mail", delay=5)
    assert (later.options.priority, later.options.queue, later.options.delay) == (
        1,
        "mail",
        timedelta(seconds=5),
    )
    assert made.options != later.options
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert later.using(run_at=at).options.delay is None
    assert later.using(run_at=at).using(delay=1).options.run_at is None


def test_unknown_using_option_is_a_type_error_that_lists_the_known() -> None:
    with pytest.raises(TypeError, match=r"no option when: the options are run_at, delay"):
        job(send_receipt).using(when=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "options",
    [
        {"run_at": datetime(2026, 1, 1)},
        {"run_at": "2026-01-01"},
        {"run_at": datetime(1, 1, 1, tzinfo=UTC)},
        {"run_at": datetime.max.replace(tzinfo=UTC)},
        {"delay": -1},
        {"delay": "5"},
        {"delay": float("nan")},
        {"priority": 0},
        {"priority": 2.0},
        {"queue": ""},
        {"queue": "q" * 201},
        {"queue": "\ud800"},
        {"max_attempts": 0},
        {"unique": True},
        {"tags": "a"},
        {"tags": ["t"] * 21},
        {"tags": ["t" * 201]},
        {"tags": [None]},
        {"metadata": [1]},
        {"metadata": {1: 2}},
        {"metadata": {"awa:timeout": 5}},
        {"metadata": {"a": object()}},
        {"metadata": {"a": "\x00"}},
        {"timeout": 0},
        {"retry": 5},
    ],
    ids=named,
)
def test_wrong_option_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob, match=next(iter(options))):
        job(send_receipt).using(**options)


def test_run_at_and_delay_exclude_each_other() -> None:
    with pytest.raises(InvalidJob, match="run_at and delay"):
        job(send_receipt).using(run_at=datetime(2026, 1, 1, tzinfo=UTC), delay=5)


def test_policy_of_ones_own_cannot_travel_with_one_job() -> None:
    class Own:
        def delay(self, attempt: int) -> timedelta:
            return timedelta(0)

    assert job(retry=Own())(send_receipt).handler.retry.delay(1) == timedelta(0)
    with pytest.raises(InvalidJob, match=r"retry: .*cannot be stored"):
        job(send_receipt).using(retry=Own())
    with pytest.raises(InvalidJob, match=r"retry: .*declare it with @job"):
        job(send_receipt).using(retry=lambda attempt: 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="retry_on"):  # a class would have to be imported by its stored name
        job(send_receipt).using(retry_on=ValueError)  # type: ignore[call-arg]


def test_options_of_one_job_travel_in_its_metadata() -> None:
    made = job(send_receipt).using(timeout=1.5, retry=Fixed(wait=9), metadata={"trace": "x"})
    assert prepare(made.handler, made.options).shape.metadata == (
        '{"trace":"x","awa:timeout":1.5,"awa:retry":{"policy":"fixed","wait":9.0,"jitter":0.0}}'
    )


def test_too_large_metadata_is_refused(settings: Any) -> None:
    settings.AWA = {"MAX_ARGS_BYTES": 100}
    made = job(send_receipt).using(metadata={"a": "b" * 100})
    with pytest.raises(InvalidJob, match="metadata takes"):
        prepare(made.handler, made.options)


def test_key_counts_defaults_that_are_left_out() -> None:
    made = job(unique=Unique(args=True))(send_receipt)
    recipe = prepare(made.handler, made.options)

    def key(**arguments: object) -> bytes | None:
        return recipe.keyed(recipe.make(arguments), None).unique_key

    assert key(order_id=1) is not None
    assert key(order_id=1) != key(order_id=2)
    assert key(order_id=1) == key(order_id=1, to="")


def test_using_unique_of_an_unknown_argument_is_refused() -> None:
    made = job(send_receipt).using(unique=Unique(args=("nope",)))
    with pytest.raises(InvalidJob, match="'nope', which is no parameter"):
        prepare(made.handler, made.options)


def test_periodic_declares_a_schedule_and_gives_the_job_back() -> None:
    made = job(queue="mail")(send_receipt)
    assert periodic("0 9 * * mon-fri", timezone="Europe/Madrid", args={"order_id": 1})(made) is made
    [schedule] = registry.periodic_jobs()
    assert (schedule.name, schedule.kind, schedule.queue) == (made.handler.kind, made.handler.kind, "mail")
    assert (schedule.cron_expr, schedule.timezone) == ("0 9 * * mon-fri", "Europe/Madrid")
    assert schedule.encode() == '{"order_id":1}'


def test_periodic_on_a_function_makes_it_a_job() -> None:
    @periodic("@daily", name="nightly")
    def clean() -> None: ...

    assert registry.periodic_jobs()[0].handler is clean.handler
    assert registry.periodic_jobs()[0].name == "nightly"
    assert (registry.periodic_jobs()[0].missed, registry.periodic_jobs()[0].catch_up_limit) == (
        "coalesce",
        100,
    )


def test_periodic_refuses_options_that_it_would_not_keep() -> None:
    with pytest.raises(ConfigurationError, match="without using"):
        periodic("@daily", args={"order_id": 1})(job(send_receipt).using(priority=1))
    assert registry.periodic_jobs() == []


def test_periodic_takes_seconds_and_a_policy() -> None:
    periodic("*/10 * * * * *", args={"order_id": 1}, missed="catch_up", catch_up_limit=3)(job(send_receipt))
    [schedule] = registry.periodic_jobs()
    assert (schedule.cron_expr, schedule.missed, schedule.catch_up_limit) == ("*/10 * * * * *", "catch_up", 3)


@pytest.mark.parametrize(
    ("expr", "options", "why"),
    [
        ("61 * * * *", {}, "cron expression"),
        ("@daily", {"timezone": "Mars"}, "time zone"),
        ("@daily", {}, "order_id"),
        ("@daily", {"args": {"order_id": 1, "x": 2}}, "'x'"),
        ("@daily", {"args": {"order_id": 1}, "name": "n" * 201}, "name"),
        ("@daily", {"args": {"order_id": 1}, "metadata": {"awa:x": 1}}, "reserved"),
        (
            "@daily",
            {"args": {"order_id": 1}, "missed": "all"},
            "missed must be one of coalesce, skip, catch_up",
        ),
        ("@daily", {"args": {"order_id": 1}, "catch_up_limit": 0}, "catch_up_limit"),
        ("@daily", {"args": {"order_id": 1}, "catch_up_limit": True}, "catch_up_limit"),
    ],
)
def test_wrong_periodic_declaration_is_refused(expr: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        periodic(expr, **options)(job(send_receipt))
    assert registry.periodic_jobs() == []


def test_import_and_decorators_touch_no_setting() -> None:
    code = """
import os, sys
os.environ.pop("DJANGO_SETTINGS_MODULE", None)
from datetime import timedelta
from awa_django import Cancel, Exponential, JobContext, RetryAfter, Snooze, Unique
from awa_django import enqueue_many, job, periodic
from tests.param_ids import named
@periodic("@daily", args={"n": 1})
@job(unique=Unique(args=True, period=timedelta(hours=1)), retry=Exponential(), timeout=5)
def handler(n: int): ...
handler.using(delay=5, priority=1)
from django.conf import settings
from django.apps import apps
assert not settings.configured and not apps.ready
assert "awa_django.models" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("delay", r"here it is enqueue\(\.\.\.\)"),
        ("apply_async", r"using\(delay=.*\)\.enqueue"),
        ("enqueu", ""),
    ],
)
def test_verbs_of_other_libraries_get_a_hint(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=f"'Job' object has no attribute '{name}'.*{said}"):
        getattr(job(send_receipt), name)
    assert not hasattr(job(kind="other")(send_receipt), name)
