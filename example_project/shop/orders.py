"""Place an order: its row and its jobs commit together, or not at all."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction

from example_project.shop.models import PRICES, Order, Product
from example_project.shop.tasks import (
    award_points,
    capture_payment,
    notify_warehouse,
    send_receipt,
    send_reminder,
)

REMIND_AFTER = timedelta(days=3)


class OrderRefused(Exception):
    """The order did not go through; nothing of it was kept. ``order`` is what was rolled back."""

    def __init__(self, order: Order) -> None:
        super().__init__(f"the order of {order.customer} was refused at the last moment")
        self.order = order


def place_order(customer: str, product: Product, *, refuse: bool = False) -> Order:
    """Save the order and enqueue its jobs in one transaction.

    Raises: OrderRefused at the very end when ``refuse`` is set, to show what a roll back takes along.
    """
    with transaction.atomic():
        order = Order.objects.create(customer=customer, product=product, amount=PRICES[product])
        order.receipt_job_id = send_receipt.enqueue(order_id=order.pk).id
        order.payment_job_id = capture_payment.enqueue(order_id=order.pk, amount=order.amount).id
        notify_warehouse.enqueue(order_id=order.pk)
        award_points.enqueue(order_id=order.pk, points=int(order.amount))
        send_reminder.using(delay=REMIND_AFTER).enqueue(order_id=order.pk)
        order.save(update_fields=["receipt_job_id", "payment_job_id"])
        if refuse:
            raise OrderRefused(order)
    return order
