"""The mixed load of the demo: each group of jobs has an end that it must come to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from django.db import connections, transaction
from django.utils import timezone

from awa_django import Enqueued
from awa_django.conf import get_settings
from awa_django.operations import cancel
from example_project.shop import tasks
from example_project.shop.models import PRICES, Order, Product
from example_project.shop.orders import OrderRefused, place_order

REFUSED_ORDERS = 20
RAW_INSERTS = 5
POINTS = 7


class Ending(StrEnum):
    """How a job of the demo stands when everything has run."""

    COMPLETED = "completed"
    RETRIED = "completed after a retry"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SCHEDULED = "scheduled"
    UNFINISHED = "unfinished"
    LOST = "lost"


@dataclass
class Group:
    """Jobs of one sort, and how each of them must end."""

    name: str
    designed: Ending
    ids: list[int] = field(default_factory=list)
    # Enqueues that a unique key refused, as they should be.
    duplicates: int = 0
    # Whether each of its jobs sends one message, and whether each gives points.
    sends: bool = False
    gives_points: bool = False
    # Whether all of it can run at once.
    at_once: bool = False


@dataclass
class Load:
    """Everything that one run of the demo enqueued. ``tag`` is on each of its jobs."""

    tag: str
    groups: list[Group] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    rolled_back: list[Order] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def ids(self) -> list[int]:
        return [job_id for group in self.groups for job_id in group.ids]

    def ids_to_end(self) -> list[int]:
        """The jobs that must end during the demo: all but those of tomorrow."""
        groups = (group for group in self.groups if group.designed != Ending.SCHEDULED)
        return [job_id for group in groups for job_id in group.ids]

    def add(
        self,
        name: str,
        designed: Ending,
        answers: Iterable[Enqueued],
        *,
        sends: bool = False,
        gives_points: bool = False,
        at_once: bool = False,
    ) -> Group:
        """A group of the jobs that were created; the other answers must name a holder."""
        group = Group(name, designed, sends=sends, gives_points=gives_points, at_once=at_once)
        holders = []
        for answer in answers:
            if answer.created:
                group.ids.append(answer.id)
            else:
                holders.append(answer.holder_id)
        group.duplicates = len(holders)
        if not set(holders) <= set(group.ids):
            self.problems.append(f"{name}: a duplicate was refused for a job of somebody else")
        self.groups.append(group)
        return group


def enqueue_load(tag: str, orders: int) -> Load:
    """Enqueue the load: ``orders`` receipts to run now, and the other groups in proportion."""
    load = Load(tag)
    with transaction.atomic():
        load.orders = Order.objects.bulk_create(
            Order(customer=f"customer{number}@example.org", product=Product.TEA, amount=PRICES[Product.TEA])
            for number in range(orders)
        )
        _enqueue_now(load)
        _enqueue_later(load)
        _enqueue_failing(load)
        _insert_by_sql(load)
        Order.objects.bulk_update(load.orders, ["receipt_job_id", "payment_job_id"], batch_size=500)
    for order in load.orders[:REFUSED_ORDERS]:
        try:
            place_order(order.customer, Product.COFFEE, refuse=True)
        except OrderRefused as exc:
            load.rolled_back.append(exc.order)
    return load


def _enqueue_now(load: Load) -> None:
    orders, tags = load.orders, [load.tag]
    asked_twice = orders[: len(orders) // 10]
    receipts = tasks.send_receipt.using(tags=tags).enqueue_many(
        {"order_id": order.pk} for order in [*orders, *asked_twice]
    )
    for order, receipt in zip(orders, receipts, strict=False):
        order.receipt_job_id = receipt.id
    load.add(
        "receipts, unique",
        Ending.COMPLETED,
        receipts,
        sends=True,
        at_once=True,
    )
    load.add(
        "newsletters, bulk",
        Ending.COMPLETED,
        tasks.send_newsletter.using(tags=tags).enqueue_many(
            {"to": order.customer, "issue": load.tag} for order in _share(orders, 4)
        ),
        sends=True,
        at_once=True,
    )
    load.add(
        "warehouse, async",
        Ending.COMPLETED,
        [tasks.notify_warehouse.using(tags=tags).enqueue(order_id=order.pk) for order in _share(orders, 10)],
        sends=True,
        at_once=True,
    )
    load.add(
        "points, atomic",
        Ending.COMPLETED,
        tasks.award_points.using(tags=tags).enqueue_many(
            {"order_id": order.pk, "points": POINTS} for order in _share(orders, 20)
        ),
        gives_points=True,
        at_once=True,
    )


def _enqueue_later(load: Load) -> None:
    tags, tomorrow = [load.tag], timezone.now() + timedelta(days=1)
    load.add(
        "reminders in 1-5 s",
        Ending.COMPLETED,
        tasks.send_reminder.enqueue_many(
            tasks.send_reminder.using(delay=1 + number % 5, tags=tags).item(order_id=order.pk)
            for number, order in enumerate(_share(load.orders, 7))
        ),
        sends=True,
    )
    later = tasks.send_reminder.using(run_at=tomorrow, tags=tags)
    load.add(
        "reminders tomorrow",
        Ending.SCHEDULED,
        later.enqueue_many({"order_id": order.pk} for order in _share(load.orders, 20)),
    )
    cancelled = load.add(
        "cancelled by hand",
        Ending.CANCELLED,
        later.enqueue_many({"order_id": order.pk} for order in _share(load.orders, 100)),
    )
    cancel(cancelled.ids, by="demo", reason="the customer asked us to")


def _enqueue_failing(load: Load) -> None:
    tags = [load.tag]
    unpaid = _share(load.orders, 20)
    payments = tasks.capture_payment.using(tags=tags).enqueue_many(
        {"order_id": order.pk, "amount": order.amount} for order in unpaid
    )
    for order, payment in zip(unpaid, payments, strict=True):
        order.payment_job_id = payment.id
    load.add("payments, flaky", Ending.RETRIED, payments)
    load.add(
        "expired cards",
        Ending.FAILED,
        tasks.charge_expired_card.using(tags=tags).enqueue_many(
            {"order_id": order.pk} for order in _share(load.orders, 200)
        ),
    )


def _insert_by_sql(load: Load) -> None:
    """Jobs as any other program would enqueue them."""
    group = Group("receipts by SQL", Ending.COMPLETED, sends=True, at_once=True)
    with connections[get_settings().database].cursor() as cursor:
        for order in load.orders[:RAW_INSERTS]:
            cursor.execute(
                "INSERT INTO awa.jobs (kind, args, tags) VALUES ('shop.send_receipt', %s, %s) RETURNING id",
                [json.dumps({"order_id": order.pk}), [load.tag]],
            )
            group.ids.append(cursor.fetchone()[0])
    load.groups.append(group)


def _share(orders: list[Order], divisor: int) -> list[Order]:
    return orders[-max(len(orders) // divisor, 1) :]  # the newest, which the shop's page shows
