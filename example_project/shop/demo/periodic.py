"""The periodic job of the demo, without waiting for the next minute."""

from __future__ import annotations

from django.db import connections

from awa_django.conf import get_settings
from example_project.shop.demo.load import Ending, Group, Load
from example_project.shop.tasks import count_orders

GROUP = "periodic"


def has_fired(load: Load) -> bool:
    """Whether the schedule has made a job since the load was enqueued; the job becomes part of the load.

    A schedule that is new counts from the moment it was written, so it would fire at the next full
    minute. Set back by one minute it looks like one whose fire was missed while no worker ran, which
    is made up for once.
    """
    group = next((group for group in load.groups if group.name == GROUP), None)
    if group is None:
        group = Group(GROUP, Ending.COMPLETED)
        load.groups.append(group)
    if group.ids:
        return True
    kind = count_orders.handler.kind
    with connections[get_settings().database].cursor() as cursor:
        cursor.execute(
            "SELECT min(id) FROM awa.jobs WHERE kind = %s AND id > %s", [kind, max(load.ids(), default=0)]
        )
        (job_id,) = cursor.fetchone()
        if job_id is not None:
            group.ids.append(job_id)
            return True
        cursor.execute(
            """
            UPDATE awa.cron_jobs
            SET last_enqueued_at = date_trunc('minute', now()) - interval '1 minute'
            WHERE name = %s AND last_enqueued_at >= date_trunc('minute', now())
            """,
            [kind],
        )
    return False
