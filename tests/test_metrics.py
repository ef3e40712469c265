"""Metrics: the numbers and the format, who may see them, what they cost, and the rules made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from django.test.utils import CaptureQueriesContext

from awa_django import metrics, views
from awa_django.conf import get_settings
from awa_django.exposition import Family
from awa_django.histogram import bucket
from awa_django.management.commands import awa_metrics
from awa_django.metrics import collect, render
from awa_django.storage.stats import fold_stats
from awa_django.worker.health import Health
from awa_django.worker.measure import families as worker_families
from tests import handlers
from tests.conftest import PROJECT_DIR
from tests.factories import insert_job, update_job

pytestmark = pytest.mark.django_db

LABEL = r'[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(
    rf"(?P<name>[a-z_]+)(?:\{{(?P<labels>{LABEL}(?:,{LABEL})*)\}})? (?P<value>\d+(?:\.\d+)?(?:e-?\d+)?)"
)
NAME = re.compile(r"\bawa_[a-z_]+\b")


def samples(text: str) -> dict[str, float]:
    """By name with labels; each line is looked at, and each name has to have been introduced."""
    found: dict[str, float] = {}
    introduced = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            introduced = line.split()[2]
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert introduced, line
            assert match["name"].startswith(introduced), line
            name = line.rpartition(" ")[0]
            assert name not in found, line
            found[name] = float(match["value"])
    return found


def execute(text: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, params)


def count_run(kind: str, *, wait: float, run: float, outcome: str = "completed", queue: str = "mail") -> None:
    execute(
        f"INSERT INTO awa.queue_stats_deltas (minute, queue, kind, {outcome}_count, wait_seconds, "
        "run_seconds, wait_bucket, run_bucket) "
        "VALUES (date_trunc('minute', now()), %s, %s, 1, %s, %s, %s, %s)",
        queue, kind, wait, run, bucket(wait), bucket(run),
    )  # fmt: skip


@pytest.mark.fault("U43", injected="the metrics are asked since when the oldest runnable job waits")
def test_queues_are_told_with_what_waits_and_since_when() -> None:
    for priority, minutes in ((1, 1), (4, 10)):
        update_job(insert_job(queue="mail", priority=priority), run_at=f"now() - interval '{minutes} min'")
    insert_job("running", queue="mail")
    insert_job("failed", queue="mail")
    insert_job("completed", queue="mail")
    insert_job("scheduled", queue="mail")
    update_job(insert_job("retryable", queue="mail"), run_at="now() - interval '20 s'")
    execute("INSERT INTO awa.queue_meta (queue, paused) VALUES ('night', true)")
    found = samples(render())
    assert found['awa_queue_runnable{queue="mail"}'] == 2
    assert found['awa_queue_oldest_runnable_age_seconds{queue="mail"}'] == pytest.approx(600, abs=5)
    assert found['awa_queue_running{queue="mail"}'] == 1
    assert found['awa_queue_failed{queue="mail"}'] == 1
    assert found['awa_queue_deferred{queue="mail"}'] == 2
    assert found['awa_queue_overdue{queue="mail"}'] == 1
    assert found['awa_queue_paused{queue="mail"}'] == 0
    assert found['awa_queue_paused{queue="night"}'] == 1
    assert found['awa_queue_oldest_runnable_age_seconds{queue="night"}'] == 0
    assert found["awa_promotion_lag_seconds"] == pytest.approx(20, abs=5)
    assert found["awa_metrics_truncated"] == 0


def test_empty_queue_has_metrics_too() -> None:
    found = samples(render())
    assert found["awa_promotion_lag_seconds"] == 0
    assert found['awa_workers{state="alive"}'] == 0
    assert found["awa_unknown_kinds"] == 0


def test_counts_stop_at_their_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "CAP", 2)
    for _ in range(3):
        insert_job(queue="mail")
        insert_job("scheduled", queue="mail")
    found = samples(render())
    assert found["awa_count_cap"] == 2
    assert found['awa_queue_runnable{queue="mail"}'] == found['awa_queue_deferred{queue="mail"}'] == 2


def test_ended_runs_are_counted_and_spread_by_queue_and_kind() -> None:
    count_run("a.kind", wait=0.5, run=3)
    count_run("a.kind", wait=5000, run=3)
    count_run("a.kind", wait=0.5, run=0.0005, outcome="failed")
    count_run("b.kind", wait=0, run=0, outcome="retried")
    fold_stats(connection, batch=10)
    found = samples(render())
    assert found['awa_runs_ended_total{queue="mail",kind="a.kind",outcome="completed"}'] == 2
    assert found['awa_runs_ended_total{queue="mail",kind="a.kind",outcome="failed"}'] == 1
    assert found['awa_runs_ended_total{queue="mail",kind="b.kind",outcome="retried"}'] == 1
    wait = 'awa_run_wait_seconds_bucket{queue="mail",kind="a.kind",le="%s"}'
    bounds = ("0.256", "0.512", "4194.304", "+Inf")
    assert [found[wait % bound] for bound in bounds] == [0, 2, 2, 3]
    assert found['awa_run_wait_seconds_count{queue="mail",kind="a.kind"}'] == 3
    assert found['awa_run_wait_seconds_sum{queue="mail",kind="a.kind"}'] == 5001
    run = 'awa_run_duration_seconds_bucket{queue="mail",kind="a.kind",le="%s"}'
    assert [found[run % bound] for bound in ("0.001", "2.048", "4.096", "+Inf")] == [1, 1, 3, 3]


def test_counters_do_not_go_down_when_rollups_are_pruned() -> None:
    count_run("a.kind", wait=1, run=1)
    fold_stats(connection, batch=10)
    before = samples(render())
    execute("DELETE FROM awa.queue_stats")
    assert samples(render()) == before


def test_more_kinds_than_are_told_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PAIRS", 1)
    count_run("a.kind", wait=1, run=1)
    count_run("b.kind", wait=1, run=1)
    fold_stats(connection, batch=10)
    text = render()
    assert samples(text)["awa_metrics_truncated"] == 1
    assert "b.kind" not in text


def test_workers_and_duties_are_told_by_state() -> None:
    execute(
        "INSERT INTO awa.runtime_instances (name, supervisor, hostname, pid, version, concurrency, draining, "
        "last_seen_at) VALUES "
        "('a', NULL, 'h', 1, '1', 0, false, now()), ('a/1', 'a', 'h', 2, '1', 4, false, now()), "
        "('b', NULL, 'h', 3, '1', 0, true, now()), ('b/1', 'b', 'h', 4, '1', 8, true, now()), "
        "('c', NULL, 'h', 5, '1', 0, false, now() - interval '5 min'), "
        "('c/1', 'c', 'h', 6, '1', 16, false, now() - interval '5 min'), "
        "('gone', NULL, 'h', 7, '1', 0, false, now() - interval '11 min')"
    )
    execute("UPDATE awa.leaders SET holder = 'a', expires_at = now() + interval '20 s' WHERE duty = 'cron'")
    found = samples(render())
    assert [found[f'awa_workers{{state="{state}"}}'] for state in ("alive", "draining", "silent")] == [
        1,
        1,
        1,
    ]
    assert found["awa_worker_slots"] == 4
    assert found['awa_leader{duty="cron"}'] == 1
    assert found['awa_leader{duty="promote"}'] == 0


def test_kinds_without_a_handler_are_counted() -> None:
    insert_job(kind=handlers.record.handler.kind)
    insert_job(kind="nobody.knows")
    insert_job("scheduled", kind="nobody.knows.either")
    assert samples(render())["awa_unknown_kinds"] == 2


@pytest.mark.parametrize(
    "name", ['qu"ote', "back\\slash", "line\nend", 'x"} 1\nawa_leader{duty="y', "naïve 🐘", "a{b=c}"]
)
def test_names_from_rows_stay_within_their_label(name: str) -> None:
    insert_job(queue=name, kind=name)
    count_run(name, wait=1, run=1, queue=name)
    fold_stats(connection, batch=10)
    found = samples(render())
    told = name.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    assert found[f'awa_queue_runnable{{queue="{told}"}}'] == 1
    assert found[f'awa_runs_ended_total{{queue="{told}",kind="{told}",outcome="completed"}}'] == 1


@pytest.mark.fault("U43", injected="the same over many jobs: the plans")
def test_statements_do_not_grow_with_jobs_and_scan_no_table_of_jobs(fresh_tables: None) -> None:
    render()
    with CaptureQueriesContext(
        connection,
    ) as few:
        render()
    execute(
        "INSERT INTO awa.jobs_hot (kind, queue, state, run_at, attempt, run_lease, finalized_at) "
        "SELECT 'k', 'q' || n %% 5, 'completed', now(), 1, 1, now() FROM generate_series(1, 8000) AS n"
    )
    execute(
        "INSERT INTO awa.jobs_hot (kind, queue, priority) "
        "SELECT 'k', 'q' || n %% 5, n %% 3 FROM generate_series(1, 4000) AS n"
    )
    execute(
        "INSERT INTO awa.scheduled_jobs (kind, queue, run_at) "
        "SELECT 'k', 'q' || n %% 5, now() + n * interval '1 s' FROM generate_series(1, 20000) AS n"
    )
    execute("ANALYZE awa.jobs_hot, awa.scheduled_jobs")
    scanned: list[str] = []

    def explained(run: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().startswith(("--", "SELECT", "WITH")) and "set_config" not in sql:
            with connection.connection.cursor() as cursor:
                plan = cursor.execute(f"EXPLAIN (COSTS OFF) {sql}", params).fetchall()
            scanned.extend(
                line for (line,) in plan if re.search(r"Seq Scan on (jobs_hot|scheduled_jobs)", line)
            )
        return run(sql, params, many, context)

    with CaptureQueriesContext(connection) as many, connection.execute_wrapper(explained):
        found = samples(render())
    assert found['awa_queue_runnable{queue="q1"}'] == 800
    assert scanned == []
    assert len(many) == len(few) <= 14


def get(user: User | AnonymousUser | None = None, **headers: str) -> HttpResponse:
    request = RequestFactory().get("/metrics", headers=headers)
    if user is not None:
        request.user = user
    return views.metrics(request)


@pytest.mark.parametrize(
    ("token", "header", "status"),
    [
        ("s3cret", "Bearer s3cret", 200),
        ("s3cret", "bearer s3cret", 200),
        ("s3cret", "Bearer other", 401),
        ("s3cret", "Bearer s3crét", 401),
        ("s3cret", "Basic s3cret", 401),
        ("s3cret", "", 401),
        (None, "Bearer None", 401),
        (None, "Bearer ", 401),
        ("", "Bearer ", 401),
    ],
)
def test_token_lets_a_scraper_in(token: str | None, header: str, status: int) -> None:
    with override_settings(AWA={"METRICS_TOKEN": token}):
        response = get(authorization=header)
    assert response.status_code == status
    if status == 401:
        assert response["WWW-Authenticate"].startswith("Bearer")
        assert b"awa_queue" not in response.content
        assert b"METRICS_TOKEN" in response.content


def test_metrics_are_for_staff_with_the_permission_otherwise() -> None:
    user = User.objects.create_user("ann")
    permission = Permission.objects.get(codename="view_queuestats")
    assert get(user).status_code == get(AnonymousUser()).status_code == get().status_code == 401
    user.user_permissions.add(permission)
    assert get(User.objects.get(pk=user.pk)).status_code == 401
    User.objects.filter(pk=user.pk).update(is_staff=True)
    user.user_permissions.clear()
    assert get(User.objects.get(pk=user.pk)).status_code == 401
    user.user_permissions.add(permission)
    response = get(User.objects.get(pk=user.pk))
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "no-store" in response["Cache-Control"]
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert get(User.objects.get(pk=user.pk)).status_code == 401


def test_token_is_not_in_what_the_settings_show_of_themselves() -> None:
    with override_settings(AWA={"METRICS_TOKEN": "s3cret"}):
        assert "s3cret" not in repr(get_settings())


def test_only_reading_is_answered() -> None:
    assert views.metrics(RequestFactory().post("/metrics")).status_code == 405


def fail() -> str:
    raise OperationalError("canceling statement due to statement timeout")


def test_database_that_does_not_answer_is_said_by_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "render", fail)
    with override_settings(AWA={"METRICS_TOKEN": "s3cret"}):
        response = get(authorization="Bearer s3cret")
    assert response.status_code == 503
    monkeypatch.setattr(awa_metrics, "render", fail)
    with pytest.raises(CommandError, match="could not be asked") as raised:
        call_command("awa_metrics")
    assert raised.value.returncode == 3


def test_schema_of_another_release_is_said_with_what_to_run() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE awa.queue_totals RENAME TO not_here_yet")
    with pytest.raises(CommandError, match=r"`manage\.py migrate awa`"):
        call_command("awa_metrics")


def test_command_prints_or_replaces_a_file(tmp_path: Path) -> None:
    out = StringIO()
    call_command("awa_metrics", stdout=out)
    assert samples(out.getvalue()).keys() == samples(render()).keys()
    target = tmp_path / "awa.prom"
    target.write_text("old")
    call_command("awa_metrics", output=target)
    assert samples(target.read_text()).keys() == samples(render()).keys()
    assert target.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["awa.prom"]
    with pytest.raises(CommandError, match="could not be written"):
        call_command("awa_metrics", output=tmp_path / "none" / "awa.prom")


def families() -> list[Family]:
    """Those of the whole queue, and of one worker."""
    return [*collect(), *worker_families(Health("w", 1.0, False, [], 1), int, 0)]


def series() -> set[str]:
    """Every name that a query can name."""
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}
    return {each.name + suffix for each in families() for suffix in suffixes.get(each.type, ("",))}


def test_alert_rules_name_metrics_that_exist() -> None:
    text = (PROJECT_DIR / "ops/prometheus-alerts.yml").read_text()
    rules = text.split("- alert: ")[1:]
    assert len({rule.split("\n", 1)[0] for rule in rules}) == len(rules) >= 8
    for rule in rules:
        expression = rule.split("expr:", 1)[1].split("\n        for:", 1)[0]
        named = set(NAME.findall(expression))
        assert named, rule
        assert named <= series(), rule
        for part in ("summary:", "description:", "severity:"):
            assert part in rule, rule


def test_dashboard_names_metrics_that_exist() -> None:
    dashboard = json.loads((PROJECT_DIR / "ops/grafana-dashboard.json").read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = [
        variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable
    ]
    assert len(targets) > 10
    for query in targets + asked:
        named = set(NAME.findall(query))
        assert named, query
        assert named <= series(), query
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_page_explains_every_metric_and_no_other() -> None:
    page = (PROJECT_DIR / "docs/metrics.md").read_text()
    assert set(re.findall(r"^\| `(awa_[a-z_]+)` ", page, re.MULTILINE)) == {each.name for each in families()}
    assert set(NAME.findall(page)) - {"awa_django", "awa_metrics"} <= series() | {
        each.name for each in collect()
    }
