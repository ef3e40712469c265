"""The shop: an order and its jobs live and die together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from awa_django import Cancel, JobContext, registry
from awa_django.models import DeferredJob, HotJob, Job
from example_project.shop import tasks
from example_project.shop.models import Message, Order
from tests.conftest import PROJECT_DIR

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

ORDER = {"customer": "ann@example.org", "product": "tea"}


def context(job_id: int = 7, attempt: int = 1) -> JobContext:
    return JobContext(
        job_id=job_id, kind="shop.test", queue="mail", attempt=attempt, max_attempts=5, run_lease=1
    )


def make_order() -> Order:
    return Order.objects.create(customer="ann@example.org", product="tea", amount=Decimal("7.50"))


def test_placing_an_order_commits_its_jobs_with_it(client: Client) -> None:
    answer = client.post(reverse("order"), ORDER, follow=True)
    order = Order.objects.get()
    assert f"Order {order.pk} placed" in answer.content.decode()
    assert order.receipt_job_id is not None
    assert Job.objects.get(pk=order.receipt_job_id).args == {"order_id": order.pk}
    assert {job.kind for job in HotJob.objects.filter(state="available")} == {
        "shop.award_points",
        "shop.capture_payment",
        "shop.notify_warehouse",
        "shop.send_receipt",
    }
    assert [job.kind for job in DeferredJob.objects.all()] == ["shop.send_reminder"]


def test_an_order_that_is_rolled_back_leaves_no_job(client: Client) -> None:
    answer = client.post(reverse("order"), {**ORDER, "refuse": "1"}, follow=True)
    assert "Rolled back" in answer.content.decode()
    assert not Order.objects.exists()
    assert not Job.objects.exists()


def test_a_wrong_order_is_refused_with_the_reason(client: Client) -> None:
    answer = client.post(reverse("order"), {"customer": "nobody", "product": "tea"})
    assert answer.status_code == 422
    assert "valid email" in answer.content.decode()
    assert not Job.objects.exists()


def test_the_page_shows_how_the_receipt_stands(client: Client) -> None:
    assert "No order yet" in client.get(reverse("shop")).content.decode()
    client.post(reverse("order"), {**ORDER, "customer": "<b>@example.org"})
    client.post(reverse("order"), ORDER)
    page = client.get(reverse("recent_orders")).content.decode()
    assert '<span class="state available">available</span>' in page
    assert "<b>@" not in page


def test_jobs_inserted_by_plain_sql_run(worker_env: dict[str, str]) -> None:
    order = make_order()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.jobs (kind, args) VALUES ('shop.send_receipt', %s) RETURNING id",
            [json.dumps({"order_id": order.pk})],
        )
        (job_id,) = cursor.fetchone()
        cursor.execute(
            "INSERT INTO awa.jobs (kind, args, run_at) "
            "VALUES ('shop.send_receipt', '{\"order_id\": 1}', now() + interval '1 year') RETURNING id"
        )
        (later_id,) = cursor.fetchone()
    drain(worker_env)
    assert Job.objects.get(pk=job_id).state == "completed"
    assert Message.objects.get(job_id=job_id).recipient == order.customer
    assert DeferredJob.objects.get(pk=later_id).state == "scheduled"


def test_a_receipt_of_an_order_that_is_gone_completes(worker_env: dict[str, str]) -> None:
    job_id = tasks.send_receipt.enqueue(order_id=1).id
    drain(worker_env)
    assert Job.objects.get(pk=job_id).state == "completed"
    assert not Message.objects.exists()


def test_a_second_receipt_within_the_hour_is_refused() -> None:
    with transaction.atomic():  # in which the hour does not end
        first = tasks.send_receipt.enqueue(order_id=1)
        assert tasks.send_receipt.enqueue(order_id=1).holder_id == first.id
        assert tasks.send_receipt.enqueue(order_id=2).created


def test_a_job_that_runs_again_sends_nothing_twice() -> None:
    order = make_order()
    for _ in range(2):
        tasks.send_receipt(context(), order_id=order.pk)
        # Its database calls then run on this thread, on this connection.
        assert async_to_sync(run_warehouse)(order.pk) == f"parcel-{order.pk}"
    assert sorted(Message.objects.values_list("purpose", flat=True)) == ["receipt", "warehouse"]


async def run_warehouse(order_id: int) -> str:
    return await tasks.notify_warehouse(context(job_id=8), order_id=order_id)


def test_a_reminder_of_an_order_that_is_gone_is_cancelled() -> None:
    assert tasks.send_reminder(context(), order_id=1) == Cancel("the order is gone")


def test_a_payment_is_captured_at_the_second_attempt_and_once() -> None:
    order = make_order()
    with pytest.raises(tasks.GatewayTimeout, match=r"7\.50"):
        tasks.capture_payment(context(), order_id=order.pk, amount=order.amount)
    tasks.capture_payment(context(attempt=2), order_id=order.pk, amount=order.amount)
    order.refresh_from_db()
    paid_at = order.paid_at
    tasks.capture_payment(context(attempt=2), order_id=order.pk, amount=order.amount)
    order.refresh_from_db()
    assert paid_at is not None
    assert order.paid_at == paid_at


def test_orders_are_counted_every_minute() -> None:
    make_order()
    (schedule,) = [job for job in registry.periodic_jobs() if job.name == "shop.count_orders"]
    assert schedule.cron_expr == "* * * * *"
    assert tasks.count_orders() == {"placed": 1, "paid": 0}


def test_settings_refuse_the_public_key_without_debug() -> None:
    without_key = {name: value for name, value in os.environ.items() if name != "SECRET_KEY"}
    done = subprocess.run(
        [sys.executable, "-c", "import example_project.settings"],
        cwd=PROJECT_DIR,
        env={**without_key, "DEBUG": "0", "PYTHONPATH": str(PROJECT_DIR)},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "SECRET_KEY" in done.stderr


def drain(env: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "awa_worker", "--drain"],
        cwd=PROJECT_DIR,
        env=env,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
