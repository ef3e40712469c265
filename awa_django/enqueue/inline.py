"""``AWA["INLINE"]``: jobs run in the process that enqueues them. For tests."""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.utils.module_loading import import_string

from awa_django.conf import get_settings

# By its name, as nothing but a test loads what is above the worker.
RUN = "awa_django.testing.inlining.run_enqueued"


def run_inline(job_ids: list[int]) -> None:
    """Run these jobs as far as they are due, now or when the open transaction commits."""
    settings = get_settings()
    run = partial(import_string(RUN), job_ids)
    if settings.inline == "commit":
        transaction.on_commit(run, using=settings.database)
    else:
        run()
