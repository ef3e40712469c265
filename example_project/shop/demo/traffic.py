"""The shop's visitors in ``demo --web``: orders that keep coming, so that there is something to see."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta

from example_project.shop import tasks
from example_project.shop.models import Order, Product
from example_project.shop.orders import OrderRefused, place_order

REFUSED, EXPIRED = 0.05, 0.04
# When customers want to be reminded: some soon, most of them some day.
REMINDERS = (
    timedelta(seconds=40), timedelta(minutes=10), timedelta(hours=2), timedelta(days=1), timedelta(days=9)
)  # fmt: skip


class Traffic:
    """Call ``step`` often: it does what has become due since."""

    def __init__(self) -> None:
        # Seconds. An order is six jobs: charts move, and a laptop hardly notices.
        self._every: dict[Callable[[], None], float] = {_order: 0.6, _labels: 6.0, _newsletter: 45.0}
        self._due = dict.fromkeys(self._every, time.monotonic())

    def step(self) -> None:
        """At most one of each, so that a machine that was asleep is not flooded."""
        now = time.monotonic()
        for visit, every in self._every.items():
            if now >= self._due[visit]:
                visit()
                self._due[visit] = now + random.uniform(0.5, 1.5) * every


def _order() -> None:
    customer = f"visitor{random.randrange(1_000)}@example.org"
    try:
        order = place_order(customer, random.choice(list(Product)), refuse=random.random() < REFUSED)
    except OrderRefused:
        return
    tasks.send_reminder.using(delay=random.choice(REMINDERS)).enqueue(order_id=order.pk)
    if random.random() < EXPIRED:
        tasks.charge_expired_card.enqueue(order_id=order.pk)


def _labels() -> None:
    """What takes seconds, so that the dashboard shows it running."""
    tasks.print_labels.enqueue(count=random.randint(4, 30))


def _newsletter() -> None:
    customers = Order.objects.values_list("customer", flat=True)[:200]
    tasks.send_newsletter.enqueue_many({"to": to, "issue": f"{time.time():.0f}"} for to in customers)
