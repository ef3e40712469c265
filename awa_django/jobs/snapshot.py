"""JobSnapshot: one job as it stood when it was read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connections

from awa_django.codec import JSON
from awa_django.conf import get_settings
from awa_django.errors import JobNotFound
from awa_django.handler import Handler
from awa_django.states import TERMINAL_STATES, JobState
from awa_django.storage.lookup import find_job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """A job at one moment. ``errors`` has an entry for each attempt that ended badly, oldest first.

    ``result`` is what the handler returned, if it is declared with ``keep_result=True``: restored by
    its return annotation, or plain JSON where that does not fit.
    """

    id: int
    kind: str
    queue: str
    state: JobState
    priority: int
    attempt: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    attempted_at: datetime | None
    finalized_at: datetime | None
    args: dict[str, JSON]
    errors: list[dict[str, JSON]]
    metadata: dict[str, JSON]
    tags: tuple[str, ...]
    progress: dict[str, JSON] | None
    result: Any

    @property
    def is_finished(self) -> bool:
        """Whether the job has ended and only an operator can bring it back."""
        return self.state in TERMINAL_STATES


def read_snapshot(handler: Handler, job_id: int) -> JobSnapshot:
    """The job with this id. Raises: JobNotFound when there is none, or it is of another kind."""
    row = find_job(connections[get_settings().database], job_id)
    if row is None or row.kind not in (handler.kind, *handler.aliases):
        raise JobNotFound(job_id)
    return JobSnapshot(
        id=row.id,
        kind=row.kind,
        queue=row.queue,
        state=JobState(row.state),
        priority=row.priority,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        run_at=row.run_at,
        created_at=row.created_at,
        attempted_at=row.attempted_at,
        finalized_at=row.finalized_at,
        args=json.loads(row.args),
        errors=json.loads(row.errors),
        metadata=json.loads(row.metadata),
        tags=tuple(row.tags),
        progress=None if row.progress is None else json.loads(row.progress),
        result=None if row.result is None else handler.signature.restore_result(row.result),
    )
