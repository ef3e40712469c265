"""The signature of a handler is the schema of its jobs: stored, run, renamed, changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from django.test import TestCase

from awa_django import Fixed, InvalidJob, Job, JobContext, Snooze, job, registry
from awa_django.models import Job as Row
from awa_django.testing import Run, assert_enqueued, drain, run_job
from tests.factories import insert_job, reload_job


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict, total=False):
    fast: bool


class Struct(msgspec.Struct):
    name: str


@dataclass
class Line:
    product: UUID
    price: Decimal
    size: Size | None = None


@dataclass
class Order:
    lines: list[Line]
    placed_at: datetime
    notes: dict[str, str] = field(default_factory=dict)


MADRID = timezone(timedelta(hours=2))
LINE = Line(UUID("12345678-1234-5678-1234-567812345678"), Decimal("10.10"), Size.LARGE)
ran: list[Any] = []


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    """What a test declares is forgotten after it."""
    ran.clear()
    before = set(map(id, registry.handlers()))
    yield
    for handler in registry.handlers():
        if id(handler) not in before:
            registry.unregister(handler)


def takes(hint: Any, kind: str = "typed.takes") -> Job[[Any], None]:
    """A job whose one argument has this annotation."""

    def handler(value: Any) -> None:
        ran.append(value)

    handler.__annotations__["value"] = hint
    return job(kind=kind)(handler)


def redeclare(job_: Job[..., Any], function: Callable[..., Any], **options: Any) -> Job[..., Any]:
    """The next release: another function in the place of the job's."""
    registry.unregister(job_.handler)
    declared: Job[..., Any] = job(**{"kind": job_.handler.kind, **options})(function)
    return declared


class ArgumentsTest(TestCase):
    def test_each_type_comes_back_through_the_table(self) -> None:
        now = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
        for hint, value in (
            (Order, Order([LINE, Line(LINE.product, Decimal("-0.001"))], now, {"é": "\U0001f600"})),
            (datetime, now.astimezone(MADRID)),
            (datetime, datetime(2026, 3, 29, 1, 30)),
            (date, date(2024, 2, 29)),
            (time, time(23, 59, 59, 1)),
            (timedelta, timedelta(days=-1, microseconds=1)),
            (UUID, LINE.product),
            (Decimal, Decimal("123456789012345678901234567890.10")),
            (Size, Size.SMALL),
            (Colour, Colour.RED),
            (Level, Level.HIGH),
            (Level | None, None),
            (int | str, "7"),
            (int | str, 7),
            (Line | None, LINE),
            (list[Line], [LINE]),
            (dict[str, Decimal], {"a": Decimal("1.0")}),
            (set[str], {"a", "b"}),
            (frozenset[int], frozenset({1})),
            (tuple[int, str], (1, "a")),
            (bytes, b"\x00\xff"),
            (Literal["a", "b"], "b"),
            (Point, Point(1, -2)),
            (Options, {"fast": True}),
            (Struct, Struct("s")),
            (float, 0.1),
            (int, -(2**63)),
        ):
            typed = takes(hint)
            typed.enqueue(value)
            [run] = drain()
            assert run.outcome == "completed", (hint, run.error)
            [found] = ran
            assert found == value, hint
            assert type(found) is type(value), hint
            assert_enqueued(typed, [value])
            ran.clear()
            registry.unregister(typed.handler)
            Row.objects.all().delete()

    def test_wrong_values_are_refused_by_name(self) -> None:
        for hint, value in (
            (Order, {"lines": 1}),
            (Size, "xl"),
            (UUID, "no"),
            (int, "7"),
            (Line | None, 0),
            (dict[int, str], {7: "JSON has only strings as keys"}),
            (Any, {(1, 2): "no tuples either"}),
        ):
            typed = takes(hint)
            with pytest.raises(InvalidJob, match=r"argument 'value' of 'typed\.takes'"):
                typed.enqueue(value)
            registry.unregister(typed.handler)

    def test_defaults_are_those_of_the_release_that_runs_the_job(self) -> None:
        def greet(name: str, greeting: str = "Hello") -> None:
            ran.append(greeting)

        def greet_anew(name: str, greeting: str = "Good day") -> None:
            ran.append(greeting)

        typed = job(kind="typed.greet")(greet)
        typed.enqueue("Ann")
        typed.enqueue("Ann", "Hello")
        redeclare(typed, greet_anew)
        drain()
        assert ran == ["Good day", "Hello"]


class ReleaseTest(TestCase):
    """Jobs of an older release, run by a newer one."""

    def run_after(self, function: Callable[..., Any], **options: Any) -> Run:
        def ship(order_id: int, weight: Decimal) -> None: ...

        typed = job(kind="typed.ship")(ship)
        self.job_id = typed.enqueue(1, Decimal("1.5")).id
        self.newer = redeclare(typed, function, **options)
        return run_job(self.job_id)

    def refused(self, function: Callable[..., Any]) -> str:
        """What the row says; the job waits for a release that can run it."""
        run = self.run_after(function)
        row = reload_job(self.job_id)
        assert (run.outcome, row.state, ran) == ("retried", "retryable", [])
        [entry] = row.errors
        assert entry["class"] == "awa_django.errors.InvalidJob"
        return str(entry["error"])

    def test_a_parameter_with_a_default_may_be_added(self) -> None:
        def ship(order_id: int, weight: Decimal, express: bool = False) -> None:
            ran.append((order_id, weight, express))

        assert self.run_after(ship).outcome == "completed"
        assert ran == [(1, Decimal("1.5"), False)]

    def test_a_required_parameter_that_is_new_is_named(self) -> None:
        def ship(order_id: int, weight: Decimal, address: str) -> None:
            ran.append(address)

        assert self.refused(ship) == (
            "'typed.ship' needs the argument 'address', which the job does not have"
        )

    def test_a_parameter_that_is_gone_is_named(self) -> None:
        def ship(order_id: int) -> None:
            ran.append(order_id)

        assert self.refused(ship) == "'typed.ship' has no parameter 'weight'"

    def test_a_parameter_that_is_renamed_is_named(self) -> None:
        def ship(order_id: int, kilos: Decimal) -> None:
            ran.append(kilos)

        assert "'weight'" in self.refused(ship)

    def test_a_parameter_of_another_type_is_named(self) -> None:
        def ship(order_id: UUID, weight: Decimal) -> None:
            ran.append(order_id)

        assert self.refused(ship).startswith("argument 'order_id' of 'typed.ship'")

    def test_a_wider_type_takes_the_old_values(self) -> None:
        def ship(order_id: int | UUID, weight: Decimal | None = None) -> None:
            ran.append((order_id, weight))

        assert self.run_after(ship).outcome == "completed"
        assert ran == [(1, Decimal("1.5"))]

    def test_further_keywords_take_what_was_renamed(self) -> None:
        def ship(order_id: int, kilos: Decimal | None = None, **old: Decimal) -> None:
            ran.append(kilos or old["weight"])

        assert self.run_after(ship).outcome == "completed"
        assert ran == [Decimal("1.5")]

    def test_a_later_release_mends_what_waits(self) -> None:
        def broken(order_id: int) -> None: ...

        def mended(order_id: int, weight: Decimal) -> None:
            ran.append(weight)

        self.refused(broken)
        redeclare(self.newer, mended)
        assert run_job(self.job_id).outcome == "completed"
        assert ran == [Decimal("1.5")]

    def test_a_renamed_kind_runs_the_jobs_of_its_aliases(self) -> None:
        def dispatch(order_id: int, weight: Decimal) -> int:
            ran.append(weight)
            return order_id

        run = self.run_after(dispatch, kind="typed.dispatch", aliases=["typed.ship"], keep_result=True)
        assert (run.kind, run.outcome, ran) == ("typed.ship", "completed", [Decimal("1.5")])
        assert self.newer.get(self.job_id).result == 1
        self.newer.enqueue(2, Decimal(1))
        assert [row.kind for row in assert_enqueued(self.newer, count=2)] == ["typed.ship", "typed.dispatch"]

    def test_a_row_of_raw_sql_that_does_not_fit_says_so(self) -> None:
        typed = takes(Order)
        job_id = insert_job(kind="typed.takes", args={"value": {"lines": [{"price": "x"}]}})
        assert run_job(job_id).outcome == "retried"
        [entry] = reload_job(job_id).errors
        assert "argument 'value' of 'typed.takes'" in entry["error"]
        assert typed.get(job_id).state == "retryable"


class RunTest(TestCase):
    def test_results_are_kept_when_asked_for_and_typed(self) -> None:
        def price(line: Line) -> Line:
            return Line(line.product, line.price * 2)

        kept = job(kind="typed.price", keep_result=True)(price)
        kept_id = kept.enqueue(LINE).id
        drain()
        assert kept.get(kept_id).result == Line(LINE.product, Decimal("20.20"))
        forgotten = redeclare(kept, price)
        forgotten_id = forgotten.enqueue(LINE).id
        drain()
        assert forgotten.get(forgotten_id).result is None

    def test_checkpoints_survive_retries_and_snoozes(self) -> None:
        def count(context: JobContext, until: int) -> Snooze | None:
            done = context.checkpoint or 0
            assert isinstance(done, int)
            ran.append(done)
            context.progress(100 * (done + 1) / until, f"{done + 1} of {until}", checkpoint=done + 1)
            if done == 0:
                raise ValueError("after the first")
            return Snooze(60) if done + 1 < until else None

        typed = job(kind="typed.count", takes_context=True, retry=Fixed(wait=60))(count)
        job_id = typed.enqueue(until=3).id
        drain()
        assert typed.get(job_id).progress == {
            "percent": pytest.approx(33.3, abs=0.1),
            "message": "1 of 3",
            "checkpoint": 1,
        }
        drain(until=timedelta(minutes=5))
        assert ran == [0, 1, 2]
        snapshot = typed.get(job_id)
        assert (snapshot.state, snapshot.progress, snapshot.attempt) == ("completed", None, 2)
