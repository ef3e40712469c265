"""Notifier: sends the signal of each run that has ended, on a thread of its own.

A run keeps its slot until its receivers have returned. So slow ones slow the claims down instead of
filling the memory, and a worker that stops tells first what it has written.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import timedelta
from queue import SimpleQueue
from typing import TypeAlias

from django.db import connections

from awa_django.codec import JSON
from awa_django.handler import Handler
from awa_django.logs import get_logger
from awa_django.signals import BY_END, EndedRun
from awa_django.storage.rows import ClaimedJob, Deferral, Outcome
from awa_django.worker import verdict
from awa_django.worker.django_connections import tidy_own_thread
from awa_django.worker.holdings import HeldJob, Holdings

logger = get_logger(__name__)

Told: TypeAlias = tuple[HeldJob, Outcome]


class Notifier:
    """``put`` and ``stop`` are the completer's, on its thread; the first ``put`` starts this one."""

    def __init__(self, *, worker: str, holdings: Holdings) -> None:
        self._worker = worker
        self._holdings = holdings
        self._ended: SimpleQueue[Told | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, held: HeldJob, outcome: Outcome) -> None:
        """This run ended so, and the database has it; its slot is given back when that is told."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="awa-notifier", daemon=True)
            self._thread.start()
        self._ended.put((held, outcome))

    def stop(self) -> None:
        """End after what was put so far."""
        if self._thread is not None:
            self._ended.put(None)
            self._thread.join()

    def _serve(self) -> None:
        while (told := self._ended.get()) is not None:
            held, outcome = told
            try:
                tidy_own_thread()
                if held.handler is not None:
                    tell(held.job, held.handler, outcome, worker=self._worker)
                tidy_own_thread()
            except BaseException:  # a receiver may raise what send_robust lets through: SystemExit
                logger.exception(
                    "job %s: telling that it %s failed",
                    held.job.id,
                    verdict.describe(outcome),
                    extra={"job_id": held.job.id, "run_lease": held.job.run_lease, "kind": held.job.kind},
                )
            finally:
                self._holdings.give_back([held])
        connections.close_all()


def tell(job: ClaimedJob, handler: Handler, outcome: Outcome, *, worker: str) -> None:
    """Send the signal of a run that ended so, here and now."""
    signal = BY_END[verdict.describe(outcome)]
    if not signal.has_listeners(handler.sender):
        return
    entry = _object(getattr(outcome, "entry", None)) or {}
    signal.send_robust(
        sender=handler.sender,
        run=EndedRun(
            job_id=job.id,
            run_lease=job.run_lease,
            kind=job.kind,
            queue=job.queue,
            attempt=min(job.attempt, job.max_attempts),
            max_attempts=job.max_attempts,
            worker=worker,
            args=_object(job.args),
            metadata=_object(job.metadata) or {},
            how=_text(entry.get("outcome")) or verdict.describe(outcome),
            error=_text(entry.get("error")),
            exception=_text(entry.get("class")),
            traceback=_text(entry.get("traceback")),
            again_in=timedelta(seconds=outcome.delay) if isinstance(outcome, Deferral) else None,
        ),
    )


def _object(text: str | None) -> Mapping[str, JSON] | None:
    """The stored object; None where there is none, or none that Python can represent."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
