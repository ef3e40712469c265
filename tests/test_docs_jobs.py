"""What docs/jobs.md says of arguments, signatures and results is so."""

from __future__ import annotations

from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

from awa_django.models import Job
from awa_django.testing import drain, run_job
from example_project.shop.models import Order, Product
from tests.factories import insert_job
from tests.test_docs_pages import module, run

__all__ = ["module"]  # a fixture
PAGE = "docs/jobs.md"


@pytest.mark.django_db
def test_the_page_on_jobs_does_what_it_says(module: ModuleType, settings: Any) -> None:
    names = run(PAGE, module, settings)
    assert names["told"].startswith("argument 'at' of 'shop.ship' does not fit its annotation: ")
    assert names["snapshot"].state == "available"
    insert_job(kind="shop.deliver", args={"order_id": 3})
    insert_job(kind="shop.weigh", args={"order_id": 3, "kilos": "1.5"})
    names["import_pages"].enqueue(3)
    order = Order.objects.create(customer="ann@example.org", product=Product.TEA, amount=Decimal(1))
    names["cancel_order"].enqueue(order.pk)
    runs = drain(include_deferred=True)
    assert {run.kind: run.outcome for run in runs} == {
        "shop.ship": "completed",
        "shop.total": "completed",
        "shop.deliver": "completed",
        "shop.weigh": "completed",
        "shop.import_pages": "completed",
        "shop.cancel_order": "completed",
    }
    assert names["total"].get(names["priced"].id).result == names["lines"][0]
    assert not Order.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("args", "error"),
    [
        ({"order_id": 1, "lines": []}, "'shop.ship' needs the argument 'at', which the job does not have"),
        (
            {"order_id": 1, "lines": [], "at": "2026-01-01T00:00:00Z", "weight": 1},
            "has no parameter 'weight'",
        ),
        ({"order_id": "x", "lines": [], "at": "2026-01-01T00:00:00Z"}, "argument 'order_id' of 'shop.ship'"),
    ],
)
def test_jobs_of_another_release_say_what_does_not_fit(
    module: ModuleType, settings: Any, args: dict[str, Any], error: str
) -> None:
    run(PAGE, module, settings)
    job_id = insert_job(kind="shop.ship", args=args)
    assert run_job(job_id).outcome == "retried"
    assert error in Job.objects.get(pk=job_id).errors[0]["error"]
