"""Pruner: deletes ended jobs that are past their retention, in batches."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from awa_django import failpoints
from awa_django.conf import Retention
from awa_django.logs import get_logger
from awa_django.operations.change import BULK_KEPT_FOR, BULK_KIND
from awa_django.storage.prune import RetentionRule, prune
from awa_django.worker.database import Session
from awa_django.worker.duty import Duty
from awa_django.worker.leader import Leader

logger = get_logger(__name__)

BATCH = 1_000
# A pass that looks at millions of rows (a short retention beside a long one) is not made again at once:
# pruning takes at most this share of the time.
LARGEST_SHARE = 0.05
KEPT = {BULK_KIND: BULK_KEPT_FOR.total_seconds()}


class Pruner(Duty):
    """One pass looks at everything older than the shortest retention, oldest first."""

    name = "pruner"
    duty = "prune"

    def __init__(
        self, session: Session, leader: Leader, *, interval: timedelta, retention: Retention
    ) -> None:
        self.interval = interval
        super().__init__(session, leader)
        self._rules = retention_rules(retention)

    def perform(self) -> float | None:
        failpoints.hit("in_prune")
        cursor: datetime | None = None
        pruned_count = 0
        started_at = time.monotonic()
        while self.is_leading:
            with self.session.use() as connection:
                batch = prune(connection, self._rules, cursor=cursor, batch=BATCH, kept=KEPT)
            pruned_count += batch.pruned_count
            if batch.cursor is None or batch.examined_count < BATCH:
                break
            cursor = batch.cursor
        if pruned_count:
            logger.info("pruned %s jobs past their retention", pruned_count)
        return max(self.interval.total_seconds(), (time.monotonic() - started_at) / LARGEST_SHARE)


def retention_rules(retention: Retention) -> list[RetentionRule]:
    """The setting as rows: every state, and each exception of a queue."""
    return [
        *(RetentionRule(state, None, kept.total_seconds()) for state, kept in retention.by_state.items()),
        *(
            RetentionRule(state, queue, kept.total_seconds())
            for queue, by_state in retention.by_queue.items()
            for state, kept in by_state.items()
        ),
    ]
