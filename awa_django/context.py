"""JobContext: what a handler declared with ``takes_context=True`` sees of its run, and may do to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from awa_django.codec import JSON, clean_text, plain_json

MESSAGE_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """One run of one job. ``(job_id, run_lease)`` names it, and only grows; the job's id alone is the
    token to make an outside effect idempotent.

    ``worker`` names the process that runs it. ``deadline`` is None when the job has no timeout.
    ``checkpoint`` is what an earlier attempt reported last. The executor makes it and gives the
    callables; ``_call`` is what middleware stands round.
    """

    job_id: int
    kind: str
    queue: str
    attempt: int
    max_attempts: int
    run_lease: int
    deadline: datetime | None = None
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    worker: str = ""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    checkpoint: JSON = None
    cancelled: Callable[[], bool] = field(repr=False, default=lambda: False)
    report: Callable[[dict[str, JSON]], None] = field(repr=False, default=lambda progress: None)
    _call: Callable[[JobContext], object] = field(repr=False, default=lambda context: None)

    @property
    def is_cancelled(self) -> bool:
        """Whether the handler should stop: cancelled, past its deadline, or the lease may be lost."""
        return self.cancelled()

    def progress(
        self,
        percent: float | None = None,
        message: str | None = None,
        checkpoint: JSON = None,
    ) -> None:
        """Report how far the run is; what is not given keeps its last value.

        ``percent`` is 0 to 100. ``checkpoint`` is JSON, and reaches the next attempt if this one fails.

        Raises: ValueError for another percent; InvalidJob for a checkpoint that JSON cannot hold.
        """
        progress: dict[str, JSON] = {}
        if percent is not None:
            if isinstance(percent, bool) or not math.isfinite(percent) or not 0 <= percent <= 100:
                raise ValueError(f"percent must be between 0 and 100, not {percent!r}")
            progress["percent"] = percent
        if message is not None:
            progress["message"] = clean_text(str(message), MESSAGE_LIMIT)
        if checkpoint is not None:
            progress["checkpoint"] = plain_json(checkpoint, "checkpoint")
        self.report(progress)
