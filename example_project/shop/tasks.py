"""The shop's jobs: one for each way in which a job can go."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from decimal import Decimal

from django.db.models import F
from django.utils import timezone

from awa_django import Cancel, Fixed, JobContext, Unique, job, periodic
from example_project.shop.models import Message, Order

logger = logging.getLogger(__name__)


class GatewayTimeout(Exception):
    """The payment gateway did not answer in time."""


class CardExpired(Exception):
    """No attempt will ever charge this card."""


def message(context: JobContext, purpose: Message.Purpose, recipient: str, text: str) -> Message:
    """What to send. A job may run again after a crash, so its id is what makes the sending idempotent."""
    return Message(job_id=context.job_id, purpose=purpose, recipient=recipient, text=text)


@job(
    queue="mail",
    takes_context=True,
    unique=Unique(args=True, period=timedelta(hours=1), states="unfinished_or_completed"),
)
def send_receipt(context: JobContext, order_id: int) -> None:
    """At most one receipt for an order in an hour, however often it is asked for."""
    order = Order.objects.filter(pk=order_id).first()
    if order is None:
        logger.info("order %s is gone: nothing to send", order_id)
        return
    sent = message(
        context, Message.Purpose.RECEIPT, order.customer, f"You ordered {order.product} for {order.amount}."
    )
    Message.objects.bulk_create([sent], ignore_conflicts=True)


@job(queue="mail", takes_context=True)
def send_reminder(context: JobContext, order_id: int) -> Cancel | None:
    """Enqueued for later: until then the job waits in the deferred table."""
    order = Order.objects.filter(pk=order_id).first()
    if order is None:
        return Cancel("the order is gone")
    sent = message(
        context, Message.Purpose.REMINDER, order.customer, f"How did you like the {order.product}?"
    )
    Message.objects.bulk_create([sent], ignore_conflicts=True)
    return None


@job(takes_context=True, max_attempts=5, retry=Fixed(wait=timedelta(seconds=1)))
def capture_payment(context: JobContext, order_id: int, amount: Decimal) -> None:
    """Fails at first, as the gateway is slow to wake up, and succeeds at the second attempt."""
    if context.attempt == 1:
        raise GatewayTimeout(f"no answer to the charge of {amount} for order {order_id}")
    Order.objects.filter(pk=order_id, paid_at=None).update(paid_at=timezone.now())


@job(max_attempts=2, retry=Fixed(wait=timedelta(seconds=1)))
def charge_expired_card(order_id: int) -> None:
    """Fails for good once its two attempts are used up."""
    raise CardExpired(f"the card of order {order_id} expired in 2019")


@job(atomic=True)
def award_points(order_id: int, points: int) -> None:
    """Counts once even if it runs twice: its update commits together with the end of the job."""
    Order.objects.filter(pk=order_id).update(points=F("points") + points)


@job(queue="warehouse", takes_context=True, keep_result=True, timeout=timedelta(seconds=30))
async def notify_warehouse(context: JobContext, order_id: int) -> str:
    """Runs on the event loop; what it returns is kept with the job."""
    await asyncio.sleep(0.05)  # the warehouse's slow API
    sent = message(context, Message.Purpose.WAREHOUSE, "warehouse", f"Pack order {order_id}.")
    await Message.objects.abulk_create([sent], ignore_conflicts=True)
    return f"parcel-{order_id}"


@job(queue="warehouse", takes_context=True, timeout=timedelta(minutes=2))
def print_labels(context: JobContext, count: int) -> None:
    """Takes half a second a label, and says how far it is; stops between two when it is cancelled."""
    for done in range(count):
        if context.is_cancelled:
            return
        context.progress(100 * done / count, f"{done} of {count} labels")
        time.sleep(0.5)  # the printer


@job(queue="bulk", priority=4, takes_context=True)
def send_newsletter(context: JobContext, to: str, issue: str) -> None:
    """Enqueued by thousands; of a low priority within its queue."""
    sent = message(context, Message.Purpose.NEWSLETTER, to, f"Issue {issue}: new teas have come in.")
    Message.objects.bulk_create([sent], ignore_conflicts=True)


@periodic("* * * * *")
@job(keep_result=True)
def count_orders() -> dict[str, int]:
    """Each minute, by the clock."""
    since = timezone.now() - timedelta(hours=1)
    return {
        "placed": Order.objects.filter(placed_at__gte=since).count(),
        "paid": Order.objects.filter(paid_at__gte=since).count(),
    }
