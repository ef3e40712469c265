"""What the doctor measures: each finding is shown by what causes it, and none where all is well."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings
from pytest_django.plugin import DjangoDbBlocker

from awa_django.doctor import Finding, measure, measures
from awa_django.storage import waiters
from tests.conftest import Connect

OFF = "-c enable_indexscan=off -c enable_indexonlyscan=off -c enable_bitmapscan=off"


def found(name: str) -> Finding:
    """The finding of that name, which must be there."""
    return {finding.name: finding for finding in measure().findings}[name]


@contextmanager
def connecting_with(options: str) -> Iterator[None]:
    """Let new connections have these options of libpq; not for longer, as the test's own may come after."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connections["default"].settings_dict["OPTIONS"], "options", options)
        yield


@pytest.fixture
def full_table(clean_queue: None, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "PLAN_MATTERS_FROM", 0)
    writer = connect()
    writer.execute("INSERT INTO awa.jobs_hot (kind, queue) SELECT 'k', 'mail' FROM generate_series(1, 5000)")
    writer.execute("ANALYZE awa.jobs_hot")


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much the tests before have left in its file."""
    monkeypatch.setattr(measures, "PLAN_MATTERS_FROM", 2**60)


@pytest.mark.django_db
def test_everything_is_measured_where_all_is_well(small_table: None) -> None:
    measured = measure()
    assert measured.notify_seconds is not None
    assert measured.clock_offset_seconds == pytest.approx(0, abs=1)
    assert measured.claim_plan == "small table"
    assert measured.connections_open is not None
    assert measured.connections_usable is not None
    assert 2 <= measured.connections_open <= measured.connections_usable
    assert measured.connections_of_workers == 0
    assert measured.notification_queue_usage is not None
    assert 0 <= measured.notification_queue_usage < 0.5  # the whole server's


@pytest.mark.django_db
@pytest.mark.parametrize(("offset", "said"), [(60, "ahead"), (-60, "behind")], ids=["ahead", "behind"])
def test_clock_that_differs_is_reported(monkeypatch: pytest.MonkeyPatch, offset: int, said: str) -> None:
    there = time.time
    monkeypatch.setattr(time, "time", lambda: there() + offset)
    [example] = found("clock_skew").examples
    assert example.endswith(f" s {said}")
    assert float(example.split()[0]) == pytest.approx(60, abs=30)


@pytest.mark.django_db
def test_notification_that_does_not_arrive_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "NOTIFIED_AT_ALL", 0.1)
    monkeypatch.setattr(waiters, "listen", lambda _: None)
    assert found("notify").examples == ("none within 0.1 s",)
    assert "LISTEN_URL" in found("notify").advice


@pytest.mark.django_db
def test_late_notification_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "NOTIFIED_WITHIN", 0.0)
    assert found("notify").examples[0].startswith("after ")


@pytest.mark.django_db
def test_it_listens_where_workers_listen(database_url: str) -> None:
    with override_settings(AWA={"LISTEN_URL": database_url}):
        assert measure().notify_seconds is not None
    with override_settings(AWA={"LISTEN_URL": "postgres://127.0.0.1:1/nowhere"}):
        assert "the connection that listens: " in found("notify").examples[0]


def test_claim_goes_by_its_index(full_table: None) -> None:
    assert measure().claim_plan == "by index"


def test_claim_without_its_index_is_reported(full_table: None) -> None:
    with connecting_with(OFF):
        finding = found("claim_plan")
    assert finding.is_warning
    assert finding.examples == ("Seq Scan, Sort",)


@pytest.mark.parametrize(
    ("above", "scan", "wrong"),
    [
        ("ModifyTable", {"Node Type": "Tid Scan"}, []),
        ("ModifyTable", {"Node Type": "Seq Scan"}, ["Seq Scan"]),
        ("LockRows", {"Node Type": "Index Scan", "Index Name": "jobs_hot_claim"}, []),
        (
            "LockRows",
            {"Node Type": "Index Scan", "Index Name": "jobs_hot_pkey"},
            ["Index Scan by jobs_hot_pkey"],
        ),
        ("LockRows", {"Node Type": "Tid Scan"}, ["Tid Scan"]),
    ],
)
def test_claim_chooses_by_its_index_and_updates_by_the_places_of_rows(
    above: str, scan: dict[str, str], wrong: list[str]
) -> None:
    plan = {"Node Type": above, "Plans": [{"Relation Name": "jobs_hot", **scan}]}
    assert list(measures._wrong_in(plan)) == wrong


def test_bitmap_is_told_by_the_index_below_it() -> None:
    below = {"Node Type": "Bitmap Index Scan", "Index Name": "jobs_hot_pkey"}
    scan = {"Node Type": "Bitmap Heap Scan", "Relation Name": "jobs_hot", "Plans": [below]}
    plan = {"Node Type": "LockRows", "Plans": [scan]}
    assert list(measures._wrong_in(plan)) == ["Bitmap Index Scan by jobs_hot_pkey"]


def test_claim_by_another_way_is_reported(full_table: None) -> None:
    with connecting_with("-c enable_indexscan=off -c enable_indexonlyscan=off -c enable_seqscan=off"):
        assert "Bitmap" in found("claim_plan").examples[0]


def test_what_a_role_may_not_ask_is_left_out(full_table: None) -> None:
    with connecting_with("-c role=pg_read_all_data"):
        measured = measure()
    assert measured.claim_plan is None
    assert measured.connections_open is not None
    assert measured.notify_seconds is not None


def test_workers_that_may_need_too_many_connections_are_reported(clean_queue: None, connect: Connect) -> None:
    connect().execute(
        "INSERT INTO awa.runtime_instances (name, supervisor, hostname, pid, version, concurrency, "
        "last_seen_at) VALUES ('w', NULL, 'h', 1, '1', 0, now()), ('w-1', 'w', 'h', 2, '1', 5000, now()), "
        "('gone', NULL, 'h', 3, '1', 0, now() - interval '1 hour')"
    )
    assert found("connections").examples[0].endswith("the live workers may need 5013")


def test_server_without_another_connection_is_reported(
    monkeypatch: pytest.MonkeyPatch, django_db_blocker: DjangoDbBlocker
) -> None:
    settings = {**connections["default"].settings_dict, "HOST": "127.0.0.1", "PORT": "1"}
    monkeypatch.setitem(connections.settings, "dead", settings)
    with django_db_blocker.unblock():
        measured = measure("dead")
    del connections["dead"]
    assert [finding.name for finding in measured.findings] == ["no_connection"]
    assert measured.connections_open is None


@pytest.mark.django_db
def test_command_prints_what_was_measured(small_table: None) -> None:
    def printed(*arguments: str) -> str:
        output = StringIO()
        call_command("awa_doctor", *arguments, stdout=output)
        return output.getvalue()

    document: dict[str, Any] = json.loads(printed("--json"))
    assert set(document) == {"findings", "left_out", "measured"}
    assert set(document["measured"]) == {
        "clock_offset_seconds", "notify_seconds", "notification_queue_usage", "claim_plan",
        "connections_open", "connections_usable", "connections_of_workers",
    }  # fmt: skip
    text = printed()
    for expected in ("clock", "NOTIFY", "arrives after", "plan of the claim", "small table", "connections"):
        assert expected in text
