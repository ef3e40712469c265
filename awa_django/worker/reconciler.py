"""Reconciler: makes the rows in the name of this supervisor's children agree with what they really hold.

Dead children are buried at once: their sessions ended, started jobs through the attempt check, the
others given back. Rows that a living child does not know of (the answer to its claim was lost) are
given back too.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata

from awa_django import failpoints
from awa_django.conf import get_settings
from awa_django.logs import get_logger
from awa_django.storage import inspect, instances, rescue
from awa_django.storage.instances import Instance
from awa_django.storage.rows import Attempt, LostRun
from awa_django.worker.child import session_names
from awa_django.worker.child_process import ChildProcess
from awa_django.worker.clocks import ClockComparison
from awa_django.worker.database import PsycopgConnection, Session, transaction
from awa_django.worker.options import WorkerOptions
from awa_django.worker.rescuer import end_lost_runs, release_runs
from awa_django.worker.service import Service
from awa_django.worker.slots import Counter

logger = get_logger(__name__)

# A row must be unknown to its child at two looks in a row, and at least this old.
MIN_AGE = timedelta(seconds=2)
# Ticks from one announcement to the next, at most; children that lost no answer, too, are looked after then.
ANNOUNCE_EVERY = 10
# A look that no child is a reason for walks over the dead entries of all past runs while a long snapshot
# keeps them (0.3 us each). The next one then waits for so many times as long, and not for more seconds.
REST = 50.0
LONGEST_REST = 60.0
# Seconds that a child's next claim may be late before its answer is taken for lost.
LATE = 0.5
FORGET_AFTER = timedelta(hours=1)


@dataclass(slots=True)
class _Dead:
    """A dead child whose rows are not settled yet."""

    name: str
    application_name: str
    charged: frozenset[Attempt]
    """The runs that go through the attempt check; all others are given back."""
    error: str
    outcome: str


class Reconciler(Service):
    """Also keeps the rows of ``awa.runtime_instances``."""

    name = "reconciler"
    interval = timedelta(seconds=1.5)

    def __init__(
        self,
        session: Session,
        children: Callable[[], Iterable[ChildProcess]],
        *,
        worker: str,
        pid: int,
        options: WorkerOptions,
    ) -> None:
        super().__init__()
        self._session = session
        self._children = children
        self._worker = worker
        self._pid = pid
        self._options = options
        self._dead: list[_Dead] = []
        self._lock = threading.Lock()
        self._suspects: set[Attempt] = set()
        self._known_until_ns = 0
        self._ticks = 0
        self._rests_until = 0.0
        # Whoever has been silent for STALE_AFTER counts as gone: there are three announcements in that time.
        enough = int(get_settings().stale_after / (3 * self.interval))
        self._announce_every = min(ANNOUNCE_EVERY, max(1, enough))
        self._announced: list[str] = []
        self._clocks = ClockComparison()
        self.draining = False

    def bury(
        self, child: ChildProcess, error: str, *, charged: Iterable[Attempt], outcome: str = "rescued"
    ) -> None:
        """Settle the rows of a child that is dead; soon, on this service's own thread.

        The ``charged`` runs go through the attempt check with this error; the others are given back.
        """
        dead = _Dead(child.name, child.application_name, frozenset(charged), error, outcome)
        with self._lock:
            self._dead.append(dead)
        self.wake()

    @property
    def is_settled(self) -> bool:
        """Whether every dead child's rows are settled."""
        with self._lock:
            return not self._dead

    def tick(self) -> float | None:
        failpoints.hit("in_reconciler")
        with self._lock:
            dead = list(self._dead)
        unsettled_count = 0
        for each in dead:
            if self._bury(each):
                with self._lock:
                    self._dead.remove(each)
            else:
                unsettled_count += 1
        if unsettled_count:
            return 0.05
        names = [child.name for child in self._children()]
        is_turn = self._ticks % self._announce_every == 0
        if (is_turn and time.monotonic() >= self._rests_until) or not self._have_all_answers():
            self._reconcile()
        if is_turn or names != self._announced:
            self._announce()
            self._announced = names
        self._ticks += 1
        return None

    def withdraw(self) -> None:
        """Remove the rows of this supervisor's processes."""
        names = [self._worker, *(child.name for child in self._children())]
        with self._session.use() as connection:
            instances.withdraw(connection, names, unseen_for=FORGET_AFTER)

    def _bury(self, dead: _Dead) -> bool:
        """Whether its rows are settled: not while its sessions are ending, or a row is in use."""
        settlements = []
        with self._session.use() as connection:
            if inspect.terminate_sessions(connection, session_names(dead.application_name)):
                return False
            with transaction(connection):
                runs = rescue.runs_of_worker(connection, [dead.name])
                charged = [run for run in runs if Attempt(run.id, run.run_lease) in dead.charged]
                others = [run for run in runs if Attempt(run.id, run.run_lease) not in dead.charged]
                if charged:
                    settlements.append(
                        end_lost_runs(
                            connection, charged, worker=self._worker, error=dead.error, outcome=dead.outcome
                        )
                    )
                if others:
                    settlements.append(release_runs(connection, others, worker=self._worker))
            instances.withdraw(connection, [dead.name], unseen_for=FORGET_AFTER)
        if runs:
            logger.warning("%s: %s jobs rescued, %s given back", dead.error, len(charged), len(others))
        self.superseded_count += sum(len(each.superseded) for each in settlements)
        return not any(each.blocked for each in settlements)

    def _have_all_answers(self) -> bool:
        """Whether each claim of each child has come back since all rows were last seen to be known.

        One whose answer is missing is late.
        """
        late_ns = time.monotonic_ns() - int((get_settings().poll_interval.total_seconds() + LATE) * 1e9)
        return not self._suspects and all(
            child[Counter.ANSWER_LOST_NS] < self._known_until_ns and child[Counter.CLAIMER_TICK_NS] > late_ns
            for child in self._children()
        )

    def _reconcile(self) -> None:
        children = list(self._children())
        if not children:
            return
        began_at = time.monotonic()
        with self._session.use() as connection:
            runs = rescue.runs_of_worker(connection, [child.name for child in children], min_age=MIN_AGE)
            known = {slot.attempt for child in children for slot in child.slots()} if runs else set()
            unknown = [run for run in runs if Attempt(run.id, run.run_lease) not in known]
            forgotten = [run for run in unknown if Attempt(run.id, run.run_lease) in self._suspects]
            if forgotten:
                self._release(connection, forgotten)
        self._suspects = {Attempt(run.id, run.run_lease) for run in unknown}
        ended_at = time.monotonic()
        self._rests_until = ended_at + min((ended_at - began_at) * REST, LONGEST_REST)
        if not unknown:
            self._known_until_ns = int((began_at - MIN_AGE.total_seconds()) * 1e9)

    def _release(self, connection: PsycopgConnection, runs: Sequence[LostRun]) -> None:
        logger.warning("%s claimed jobs never reached their worker process and are given back", len(runs))
        with transaction(connection):
            settlement = release_runs(connection, runs, worker=self._worker)
        self.superseded_count += len(settlement.superseded)

    def _announce(self) -> None:
        children = list(self._children())
        with self._session.use() as connection:
            instances.announce(
                connection,
                [
                    Instance(
                        name=self._worker,
                        supervisor=None,
                        pid=self._pid,
                        concurrency=0,
                        running_count=sum(child[Counter.HELD] for child in children),
                    ),
                    *(
                        Instance(
                            name=child.name,
                            supervisor=self._worker,
                            pid=child.pid,
                            concurrency=self._options.concurrency,
                            running_count=child[Counter.HELD],
                        )
                        for child in children
                    ),
                ],
                hostname=socket.gethostname(),
                version=_version(),
                queues=sorted(self._options.queues),
                draining=self.draining,
            )
            self._clocks.look(connection)

    def close(self) -> None:
        self._session.close()


def _version() -> str:
    """The installed version; a source tree that is not installed has none."""
    try:
        return metadata.version("awa-django")
    except metadata.PackageNotFoundError:
        return "not installed"
