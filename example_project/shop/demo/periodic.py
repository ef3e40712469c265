"""The periodic job of the demo, without waiting for the next minute."""

from __future__ import annotations

from django.db import connections

from awa_django.conf import get_settings
from example_project.shop.demo.load import Ending, Group, Load
from example_project.shop.tasks import count_orders

GROUP = "periodic"


def has_fired(load: Load) -> bool:
    """Whether the schedule has made its job of this minute; the job becomes part of the load.

    A schedule that is new counts from the moment it was written, so it would fire at the next full
    minute. Set back by one minute it looks like one whose fire was missed while no worker ran, which
    is made up for once. One that has fired is left alone: each fire time makes one job.
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
            """
            SELECT id
            FROM awa.jobs
            WHERE kind = %s
              AND (metadata -> 'awa:cron' ->> 'fire_at')::timestamptz >= date_trunc('minute', now())
            ORDER BY id
            LIMIT 1
            """,
            [kind],
        )
        if job := cursor.fetchone():
            group.ids.append(job[0])
            return True
        # Only a new one stands between two full minutes.
        cursor.execute(
            """
            UPDATE awa.cron_jobs
            SET last_enqueued_at = date_trunc('minute', now()) - interval '1 minute'
            WHERE name = %s AND last_enqueued_at > date_trunc('minute', now())
            """,
            [kind],
        )
    return False
