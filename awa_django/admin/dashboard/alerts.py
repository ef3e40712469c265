"""What somebody should do something about, most urgent first."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from awa_django.admin.dashboard.format import duration, number
from awa_django.admin.dashboard.processes import is_silent
from awa_django.conf import get_settings
from awa_django.storage.dashboard import Snapshot

# Promotion is a matter of PROMOTE_INTERVAL; this covers that another leader takes over.
LATE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Alert:
    """What is wrong, and the command that mends it, if one does."""

    text: str
    command: str = ""


def alerts(snapshot: Snapshot, *, names_workers: bool) -> list[Alert]:
    """``names_workers``: whether the reader may see what processes are called."""
    workers = snapshot.processes.workers
    serving = [worker for worker in workers if worker.concurrency and not is_silent(worker)]
    silence = list(_of_silence(snapshot)) if names_workers else []
    if not serving:
        text = _("No worker is running: jobs wait until one is started.")
        return [Alert(text, "python manage.py awa_worker"), *silence]
    served = {queue for worker in serving for queue in worker.queues}
    return [*silence, *_of_promotion(snapshot, names_workers), *_of_queues(snapshot, served)]


def _of_silence(snapshot: Snapshot) -> Iterator[Alert]:
    stale_after = get_settings().stale_after
    silent = [worker.name for worker in snapshot.processes.workers if worker.state(stale_after) == "silent"]
    if silent:
        text = ngettext(
            "The process %(name)s has not been heard of for long.",
            "%(count)s processes have not been heard of for long; the first is %(name)s.",
            len(silent),
        )
        yield Alert(text % {"count": number(len(silent)), "name": silent[0]})


def _of_promotion(snapshot: Snapshot, names_workers: bool) -> Iterator[Alert]:
    lag = snapshot.overdue_seconds
    if lag is None or lag <= LATE.total_seconds():
        return
    holder = next((duty.holder for duty in snapshot.processes.leaders if duty.duty == "promote"), None)
    text = _("Promotion is %(lag)s behind.") % {"lag": duration(lag)}
    if holder is None:
        text += " " + _("Nobody does it.")
    elif names_workers:
        text += " " + _("It is done by %(holder)s.") % {"holder": holder}
    yield Alert(text, "python manage.py awa_doctor")


def _of_queues(snapshot: Snapshot, served: Container[str]) -> Iterator[Alert]:
    for queue in snapshot.queues:
        waiting = number(queue.available, snapshot.queue_cap)
        if queue.paused and queue.available:
            text = ngettext(
                "Queue %(queue)s is paused, and %(count)s runnable job waits in it.",
                "Queue %(queue)s is paused, and %(count)s runnable jobs wait in it.",
                queue.available,
            )
            yield Alert(text % {"queue": queue.queue, "count": waiting})
        elif queue.available and queue.queue not in served:
            text = ngettext(
                "No worker serves the queue %(queue)s, and %(count)s runnable job waits in it.",
                "No worker serves the queue %(queue)s, and %(count)s runnable jobs wait in it.",
                queue.available,
            )
            yield Alert(
                text % {"queue": queue.queue, "count": waiting},
                f"python manage.py awa_worker --queues {shlex.quote(queue.queue)}",
            )
