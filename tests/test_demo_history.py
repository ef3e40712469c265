"""The invented hour of the web demo: counts that fit together, of the past alone, and never twice."""

from __future__ import annotations

import pytest
from django.utils import timezone

from awa_django.histogram import percentile
from awa_django.models import QueueStats
from example_project.shop.demo.history import HABITS, MINUTES, invent_an_hour

pytestmark = pytest.mark.django_db


def test_the_hour_before_is_there_once() -> None:
    invent_an_hour()
    first = {(row.minute, row.kind): row for row in QueueStats.objects.all()}
    assert len(first) == MINUTES * len(HABITS)
    assert max(minute for minute, _kind in first) < timezone.now().replace(second=0, microsecond=0)
    invent_an_hour()
    assert {row.completed_count for row in first.values()} == {
        row.completed_count for row in QueueStats.objects.all()
    }
    for row in first.values():
        ended = row.completed_count + row.retried_count + row.failed_count + row.cancelled_count
        assert sum(row.run_histogram) == sum(row.wait_histogram) == ended > 0
        assert min(row.completed_count, row.retried_count, row.failed_count) >= 0
    labels = next(row for (_minute, kind), row in first.items() if kind.endswith("print_labels"))
    assert 2 < (percentile(labels.run_histogram, 0.5) or 0) < 30
