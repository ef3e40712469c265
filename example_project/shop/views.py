"""The shop's page: place an order, see how its jobs stand."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from awa_django.models import DeferredJob, HotJob, Job
from example_project.shop.forms import OrderForm
from example_project.shop.models import Order, Product
from example_project.shop.orders import OrderRefused, place_order

SHOWN = 15


def _recent() -> dict[str, object]:
    """The newest orders, each with the job of its receipt and of its payment."""
    orders = list(Order.objects.all()[:SHOWN])
    ids = {job_id for order in orders for job_id in (order.receipt_job_id, order.payment_job_id) if job_id}
    jobs = Job.objects.in_bulk(ids)
    return {
        "orders": [
            {
                "order": order,
                "receipt": jobs.get(order.receipt_job_id),
                "payment": jobs.get(order.payment_job_id),
            }
            for order in orders
        ],
        # Deferred jobs are counted by the next one only: a table of millions is not counted for a page.
        "next_deferred": DeferredJob.objects.order_by("run_at", "id").first(),
        "newest_job": HotJob.objects.order_by("-id").first(),
    }


@require_safe
def shop(request: HttpRequest) -> HttpResponse:
    """The whole page."""
    return render(request, "shop/shop.html", {"form": OrderForm(), **_recent()})


@require_safe
def recent_orders(request: HttpRequest) -> HttpResponse:
    """The part of the page that refreshes itself."""
    return render(request, "shop/_orders.html", _recent())


@require_POST
def order(request: HttpRequest) -> HttpResponse:
    """Place an order; with the button ``refuse`` it is rolled back at the end."""
    form = OrderForm(request.POST)
    if not form.is_valid():
        return render(request, "shop/shop.html", {"form": form, **_recent()}, status=422)
    product = Product(form.cleaned_data["product"])
    try:
        placed = place_order(form.cleaned_data["customer"], product, refuse="refuse" in request.POST)
    except OrderRefused as exc:
        messages.warning(request, f"Rolled back: {exc}. Neither the order nor any of its jobs exists.")
    else:
        messages.success(request, f"Order {placed.pk} placed, its jobs enqueued in the same transaction.")
    return redirect("shop")
