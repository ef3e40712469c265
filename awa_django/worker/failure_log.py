"""FailureLog: bad ends of runs in the log, a few of each kind, then their number."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass

from awa_django.logs import get_logger
from awa_django.states import JobState
from awa_django.storage.rows import ClaimedJob, Deferral, Ending, Outcome

logger = get_logger(__name__)

# Of each kind and level so many records in so many seconds: a kind that always fails must not hide the
# others, nor fill a disk at 10,000 jobs a second.
MOST, WINDOW = 10, 60.0


@dataclass(slots=True)
class _Window:
    ends_at: float
    noted: int = 0
    left_out: int = 0


class FailureLog:
    """``note`` and ``flush`` are the completer's, on its thread.

    A record names the job and the class of the exception. Its message is the handler's data, and stays in
    the row with the traceback.
    """

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], _Window] = {}

    def note(self, job: ClaimedJob, outcome: Outcome) -> None:
        """This run ended so, and the database has it; nothing is said of a good end."""
        if isinstance(outcome, Ending) and outcome.state == JobState.FAILED:
            level, what = logging.WARNING, "failed"
        elif isinstance(outcome, Deferral) and outcome.state == JobState.RETRYABLE:
            level, what = logging.INFO, "is tried again"
        else:
            return
        if not logger.isEnabledFor(level):
            return
        window = self._window(job.kind, level)
        if window.noted == MOST:
            window.left_out += 1
            return
        window.noted += 1
        entry = json.loads(outcome.entry or "{}")
        how, exception = str(entry.get("outcome") or what), entry.get("class")
        logger.log(
            level,
            "job %s of kind %s in queue %s %s after attempt %s of %s: %s",
            job.id,
            job.kind,
            job.queue,
            what,
            job.attempt,
            job.max_attempts,
            exception or how,
            extra={
                "job_id": job.id,
                "run_lease": job.run_lease,
                "kind": job.kind,
                "queue": job.queue,
                "attempt": job.attempt,
                "outcome": how,
                "exception": exception,
            },
        )

    def flush(self, *, all_of_them: bool = False) -> None:
        """Tell how many were left out of the windows that are over."""
        now = time.monotonic()
        for (kind, level), window in list(self._windows.items()):
            if window.ends_at <= now or all_of_them:
                del self._windows[kind, level]
                if window.left_out:
                    what = "failed" if level == logging.WARNING else "are tried again"
                    logger.log(
                        level,
                        "%s more jobs of kind %s %s within %.0f s",
                        window.left_out,
                        kind,
                        what,
                        WINDOW,
                        extra={"kind": kind, "count": window.left_out},
                    )

    def _window(self, kind: str, level: int) -> _Window:
        window = self._windows.get((kind, level))
        if window is None or window.ends_at <= time.monotonic():
            self.flush()
            window = self._windows[kind, level] = _Window(time.monotonic() + WINDOW)
        return window
