"""The queue's gauges for OpenTelemetry: told once and cheaply, in the words of those for Prometheus."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData, NumberDataPoint

from awa_django import metrics
from awa_django.integrations import gauges
from awa_django.integrations.opentelemetry import tracing
from awa_django.metrics import collect
from awa_django.worker import middleware
from tests.conftest import PROJECT_DIR
from tests.factories import insert_job, update_job

pytestmark = pytest.mark.django_db

Points = dict[str, dict[tuple[tuple[str, Any], ...], float]]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """Of a meter provider of its own; each collection reads anew."""
    monkeypatch.setattr(gauges, "FRESH_FOR", 0.0)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(gauges, "get_meter", provider.get_meter)
    yield reader
    provider.shutdown()


def points(data: MetricsData | None) -> Points:
    """The values of each instrument, by attributes."""
    return {
        metric.name: {
            tuple(sorted((point.attributes or {}).items())): point.value
            for point in metric.data.data_points
            if isinstance(point, NumberDataPoint)
        }
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_what_waits_runs_and_is_late_is_told_by_queue(reader: InMemoryMetricReader) -> None:
    for priority, minutes in ((1, 1), (4, 10)):
        update_job(insert_job(queue="mail", priority=priority), run_at=f"now() - interval '{minutes} min'")
    insert_job("running", queue="mail")
    insert_job("scheduled", queue="mail")
    update_job(insert_job("retryable", queue="mail"), run_at="now() - interval '20 s'")
    insert_job(queue="night")
    gauges.observe_queue()
    found = points(reader.get_metrics_data())
    mail, night = (("queue", "mail"),), (("queue", "night"),)
    assert found["awa.queue.runnable"] == {mail: 2, night: 1}
    assert found["awa.queue.oldest_runnable_age"][mail] == pytest.approx(600, abs=5)
    assert found["awa.queue.running"][mail] == 1
    assert found["awa.queue.deferred"][mail] == 2
    assert found["awa.queue.overdue"][mail] == 1
    assert found["awa.wanted_workers"] == {mail: 1, night: 1}
    assert found["awa.promotion_lag"][()] == pytest.approx(20, abs=5)
    assert found["awa.workers"][(("state", "alive"),)] == 0
    assert found["awa.leader"][(("duty", "cron"),)] == 0


def test_exporter_for_prometheus_makes_the_names_of_the_view_of_them(reader: InMemoryMetricReader) -> None:
    """As its rules say: other characters become "_", and the unit s ends the name as _seconds."""
    insert_job(queue="mail")
    gauges.observe_queue()
    data = reader.get_metrics_data()
    assert data is not None
    told = {
        re.sub(r"\W", "_", metric.name) + {"s": "_seconds", "": ""}[metric.unit or ""]: metric.description
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    assert told == {
        family.name: family.help
        for family in collect()
        if family.type == "gauge" and not family.name.startswith("awa_metrics_")
    }


def test_one_collection_reads_once_and_the_next_one_anew(
    reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "FRESH_FOR", 3600.0)
    insert_job(queue="mail")
    gauges.observe_queue()
    with CaptureQueriesContext(connection) as first:
        reader.get_metrics_data()
    insert_job(queue="mail")
    with CaptureQueriesContext(connection) as second:
        found = points(reader.get_metrics_data())
    assert (0 < len(first) <= 12, len(second)) == (True, 0)
    assert found["awa.queue.runnable"] == {(("queue", "mail"),): 1}
    monkeypatch.setattr(gauges, "FRESH_FOR", 0.0)
    assert points(reader.get_metrics_data())["awa.queue.runnable"] == {(("queue", "mail"),): 2}


def test_only_the_worker_that_leads_asks_and_tells(
    reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.AWA = {"MIDDLEWARE": ["awa_django.integrations.opentelemetry.tracing"]}
    monkeypatch.setattr(gauges, "disconnect", lambda: None)  # the test's own connection
    insert_job(queue="mail")
    leads: list[bool] = []
    middleware.supervise(lambda: bool(leads))
    with CaptureQueriesContext(connection) as asked:
        assert points(reader.get_metrics_data()) == {}
    assert len(asked) == 0
    leads.append(True)
    assert points(reader.get_metrics_data())["awa.queue.runnable"] == {(("queue", "mail"),): 1}
    leads.clear()
    assert points(reader.get_metrics_data()) == {}


def test_database_that_does_not_answer_leaves_a_gap_and_one_line(
    reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gauges, "FRESH_FOR", 3600.0)

    def fail() -> metrics.Reading:
        raise OperationalError("server closed the connection\nDETAIL: (4111)")

    monkeypatch.setattr(metrics, "read", fail)
    gauges.observe_queue()
    assert points(reader.get_metrics_data()) == {}
    assert [record.getMessage() for record in caplog.records] == [
        "the gauges of the queue cannot be read now: server closed the connection"
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("leave", [gauges._own_connection, gauges._no_connection])
def test_connection_that_a_collection_opened_is_closed(leave: Callable[[], Any]) -> None:
    connection.close()
    with leave():
        metrics.read()
        assert connection.connection is not None
    assert connection.connection is None


def test_connection_that_was_open_stays_open() -> None:
    connection.ensure_connection()
    with gauges._own_connection():
        metrics.read()
    assert connection.connection is not None


def test_page_names_every_gauge(reader: InMemoryMetricReader) -> None:
    page = (PROJECT_DIR / "docs/tracing.md").read_text().partition("### Gauges of the queue")[2]
    named = {f"awa.{name}" for name in re.findall(r"^\| `awa\.([a-z_.]+)`", page, re.MULTILINE)}
    assert named == {gauges._spelled(each.name) for each in metrics.gauges(metrics.Reading())}


def test_tracing_brings_the_gauges() -> None:
    assert tracing.supervising is gauges.observe_while_leading  # type: ignore[attr-defined]
