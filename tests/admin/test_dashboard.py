"""The dashboard: what it shows, and to whom."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from awa_django.storage import dashboard as storage
from awa_django.storage import status
from tests.admin.conftest import Login
from tests.admin.dashboard_rows import DATA, PAGE, add_rollup, add_worker, ago, execute, panels, take
from tests.admin.test_pages import EVIL
from tests.factories import insert_job


@pytest.mark.django_db
def test_each_queue_shows_what_waits_runs_and_failed(root: Client) -> None:
    for priority, minutes in ((1, 2), (2, 9), (4, 5)):
        insert_job(queue="mail", priority=priority, run_at=ago(minutes=minutes, seconds=1))
    insert_job("running", queue="mail", worker="box:1:a/1")
    insert_job("scheduled", queue="mail", run_at=ago(minutes=-30))
    insert_job("retryable", queue="mail", run_at=ago(minutes=-90))
    insert_job("scheduled", queue="mail", run_at=ago(minutes=1))
    insert_job("failed", queue="mail")
    insert_job("cancelled", queue="mail")
    (row,) = take().queues
    assert row.queue == "mail"
    assert (row.available, row.deferred, row.due_soon, row.overdue) == (3, 3, 1, 1)
    assert row.available_seconds is not None
    assert row.available_seconds >= 9 * 60
    assert (row.running, row.failed) == (1, 1)
    assert take().overdue_seconds == pytest.approx(row.overdue_seconds, abs=1)
    html = panels(root)["queues"]
    assert '<th scope="row">mail</th>' in html
    assert "9 min" in html
    assert "?state=failed&amp;queue=mail" in html


@pytest.mark.django_db
def test_counts_stop_at_their_cap(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOWEST_CAP", "HIGHEST_CAP", "FAILED_CAP"):
        monkeypatch.setattr(status, name, 3)
    monkeypatch.setattr(storage, "SPAN_CAP", 3)
    monkeypatch.setattr("awa_django.admin.dashboard.panels.FAILED_CAP", 3)
    monkeypatch.setattr("awa_django.admin.dashboard.panels.SPAN_CAP", 3)
    for _ in range(5):
        insert_job(queue="mail")
        insert_job("failed", queue="mail")
        insert_job("scheduled", queue="mail", run_at=ago(days=-2))
    snapshot = take()
    [mail] = snapshot.queues
    assert (mail.available, mail.deferred, mail.failed) == (3, 3, 3)
    assert max(span.counted for span in snapshot.frontier) == 3
    seen = panels(root)
    assert seen["queues"].count(">3+<") == 3
    assert "3+</td>" in seen["frontier"]


@pytest.mark.django_db
@pytest.mark.parametrize("spread", ["number * interval '1 min'", "interval '90 min'"])
def test_beyond_its_cap_a_span_is_estimated(
    spread: str, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what ANALYZE knows: also when all are due at one instant, which no histogram has then."""
    monkeypatch.setattr(storage, "SPAN_CAP", 10)
    monkeypatch.setattr("awa_django.admin.dashboard.panels.SPAN_CAP", 10)
    execute(
        f"INSERT INTO awa.scheduled_jobs (kind, run_at) "
        f"SELECT 'a', now() + {spread} + interval '20 s' FROM generate_series(1, 1000) AS number"
    )
    execute("ANALYZE awa.scheduled_jobs")
    found = take().frontier[5]  # in an hour to three
    assert found.counted == 10
    assert found.estimate == pytest.approx(120 if "number" in spread else 1000, rel=0.2)
    assert "about 1" in panels(root)["frontier"]


@pytest.mark.django_db
def test_the_last_hour_is_drawn_and_told_in_numbers(root: Client) -> None:
    add_rollup(minutes_ago=2, failed_count=1)
    add_rollup(minutes_ago=2, kind="shop.mail", wait_histogram=None, run_histogram=None)
    add_rollup(minutes_ago=50)
    add_rollup(minutes_ago=70)  # no longer
    answer = root.get(reverse(DATA)).json()
    throughput, wait = answer["charts"]["throughput"], answer["charts"]["wait"]
    assert len(throughput["x"]) == len(throughput["labels"]) == 60
    completed, _, failed, _ = (series["values"] for series in throughput["series"])
    at = completed.index(20)
    assert (at in (56, 57), failed[at], completed[at - 48], sum(completed)) == (True, 1, 10, 30)
    assert [series["values"][at] for series in wait["series"]] == [0.0015, 0.0019, 0.002]
    assert wait["series"][0]["values"][at - 1] is None
    assert "31 in all" in throughput["summary"]
    assert not throughput["is_empty"]
    html = " ".join(answer["panels"]["kinds"].split())
    assert "shop.pay" in html
    assert "2 ms" in html  # half of its waits
    assert answer["panels"]["minutes"].count('<th scope="row">') == 2


@pytest.mark.django_db
def test_an_empty_queue_says_what_to_do(root: Client) -> None:
    seen = panels(root)
    assert "No worker is running" in seen["alerts"]
    assert "python manage.py awa_worker" in seen["workers"]
    assert "No queue is known yet" in seen["queues"]
    assert "No job ended in the last hour." in seen["kinds"]
    assert root.get(reverse(DATA)).json()["charts"]["run"]["is_empty"]


@pytest.mark.django_db
def test_alerts_name_what_needs_somebody(root: Client) -> None:
    add_worker()
    add_worker("box:2:b/1", seen="5 min")
    add_worker("box:3:c/1", seen="11 min")
    insert_job(queue="mail x")
    insert_job(queue="paused")
    execute("INSERT INTO awa.queue_meta (queue, paused) VALUES ('paused', true)")
    insert_job("scheduled", run_at=ago(minutes=3))
    seen = panels(root)["alerts"]
    assert "awa_worker --queues &#x27;mail x&#x27;" in seen
    assert "Queue paused is paused" in seen
    assert "Promotion is 3 min behind. Nobody does it." in seen
    assert "The process box:2:b/1 has not been heard of for long." in seen
    assert "box:3:c/1" not in seen  # gone for good: nobody can do anything about it
    assert "No worker is running" not in seen


@pytest.mark.django_db
def test_workers_show_what_each_child_runs(root: Client) -> None:
    add_worker()
    ids = [
        insert_job("running", kind=f"shop.job{n}", worker="box:1:a/1", attempted_at=ago(seconds=n))
        for n in range(8)
    ]
    lost = insert_job("running", worker="gone")
    html = panels(root)["workers"]
    assert "8 of 10" in html
    assert html.index("shop.job7") < html.index("shop.job6")
    assert f"/hotjob/{ids[7]}/change/" in html
    assert f"/hotjob/{ids[0]}/change/" not in html
    assert "and 3 more" in html
    assert f"/hotjob/{lost}/change/" in html


@pytest.mark.django_db
def test_schedules_show_their_next_fires_and_a_wrong_one_harms_nobody(root: Client) -> None:
    execute("INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES ('good', '* * * * *', 'a')")
    execute("INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES ('wrong', 'never', 'a')")
    execute("UPDATE awa.cron_jobs SET paused = true WHERE name = 'wrong'")
    html = panels(root)["schedules"]
    good, wrong = html.split('<th scope="row">wrong')
    assert good.count("<time") == 3  # those to come, as it never fired
    assert wrong.count("<time") == 0
    assert ("paused" in good, "paused" in wrong) == (False, True)
    assert "minute, hour, day" in wrong


@pytest.mark.django_db
@pytest.mark.parametrize("evil", EVIL)
def test_no_name_reaches_the_page_unescaped(evil: str, root: Client) -> None:
    add_worker(f"w{evil}")
    insert_job("running", kind=evil, queue=evil, worker=f"w{evil}")
    insert_job(queue=evil)
    add_rollup(kind=evil)
    execute("INSERT INTO awa.queue_meta VALUES (%s, true, now(), %s)", evil, evil)
    execute("INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES (%s, %s, 'a')", evil, evil)
    execute("UPDATE awa.leaders SET holder = %s, expires_at = now() + interval '1 h'", evil)
    page = root.get(reverse(PAGE)).content.decode()
    texts = [page, *panels(root).values()]
    for text in texts:
        for tag in ("<script>alert", "<img src=x", "<svg onload"):
            assert tag not in text
    assert 'style="' not in page.split('id="content-main"')[-1]


@pytest.mark.django_db
def test_it_is_for_those_who_may_see_the_queues_and_shows_each_what_they_may_see(login: Login) -> None:
    add_worker()
    add_worker("box:1:a/2", seen="10 min")
    insert_job("running", kind="shop.secret", worker="box:1:a/1")
    insert_job("scheduled", run_at=ago(minutes=3))
    execute("INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES ('nightly', '* * * * *', 'a')")
    execute("UPDATE awa.leaders SET holder = 'chief', expires_at = now() + interval '1 h'")
    others = ("view_hotjob", "view_deferredjob", "view_runtimeinstance", "view_cronjob", "view_leaderlease")
    for name in (PAGE, DATA):
        assert login(*others).get(reverse(name)).status_code == 403
        assert login(is_staff=False).get(reverse(name)).status_code == 302
        assert Client().get(reverse(name)).status_code == 302
        assert login("view_queuemeta").post(reverse(name)).status_code == 405
    alone = login("view_queuemeta")
    seen = "".join([*panels(alone).values(), alone.get(reverse(PAGE)).content.decode()])
    for hidden in ("box:1:a", "shop.secret", "nightly", "chief", "/hotjob/", "/deferredjob/"):
        assert hidden not in seen
    assert "shop.secret" not in panels(login("view_queuemeta", "view_runtimeinstance"))["workers"]
    everything = panels(login("view_queuemeta", *others))
    assert "box:1:a/2" in everything["alerts"]
    assert "It is done by chief." in everything["alerts"]
    assert "shop.secret" in everything["workers"]
    assert "chief" in everything["duties"]
    assert "nightly" in everything["schedules"]


@pytest.mark.django_db
def test_the_index_of_the_admin_links_it(root: Client, login: Login) -> None:
    link = f'href="{reverse(PAGE)}"'
    assert link in root.get(reverse("admin:index")).content.decode()
    assert link in root.get(reverse("admin:awa_queuemeta_changelist")).content.decode()  # in the side bar
    assert link not in login("view_hotjob").get(reverse("admin:index")).content.decode()
