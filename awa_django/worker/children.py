"""Children: the set of a supervisor's child processes; starts, buries and replaces them."""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from multiprocessing import connection as mp_connection
from multiprocessing.context import BaseContext

from django.db import connections

from awa_django.logs import get_logger
from awa_django.worker.child_process import ChildProcess
from awa_django.worker.options import WorkerOptions
from awa_django.worker.reconciler import Reconciler
from awa_django.worker.set_up import leave_path
from awa_django.worker.slots import Counter

logger = get_logger(__name__)

# A child that lives shorter than this died at once: its successors wait longer and longer.
SHORT_LIFE = 5.0
FIRST_RESPAWN_WAIT = 0.1
LONGEST_RESPAWN_WAIT = 30.0
# A handler this long past its timeout ignores it: its process has to go.
OVERDUE_GRACE = 3.0
LOOK_FOR_OVERDUE_EVERY = 0.5
LOOK_AT_MEMORY_EVERY = 0.5
MEGABYTE = 1_000_000


class Children:
    """Only the supervisor's main thread changes the set; every service may read it."""

    def __init__(self, options: WorkerOptions, *, worker: str, application_name: str) -> None:
        self._options = options
        self._worker = worker
        self._application_name = application_name
        self._context = _forkserver()
        self._living: list[ChildProcess] = []
        self._lock = threading.Lock()
        self._number = 0
        self._respawn_at: list[float] = []
        self._short_lives = 0
        self._looked_for_overdue = 0.0
        self._looked_at_memory = 0.0
        self._done_before: dict[Counter, int] = {}
        self._budget_left = options.max_jobs
        self.refusal: str | None = None
        """Why a child could not start at all; then none will."""
        self._has_begun = False
        self._died_early = False

    def living(self) -> list[ChildProcess]:
        """The living children."""
        with self._lock:
            return list(self._living)

    def count(self, counter: Counter) -> int:
        """A counter over all children, the dead ones included."""
        with self._lock:
            return self._done_before.get(counter, 0) + sum(child[counter] for child in self._living)

    @property
    def held_count(self) -> int:
        """How many jobs the living children have in hand."""
        return sum(child[Counter.HELD] for child in self.living())

    @property
    def none_began(self) -> bool:
        """Whether children died, and there never was one that was ready to run anything."""
        return self._died_early and not self._has_begun and not any(child.ready for child in self.living())

    def start(self) -> None:
        """Start as many as the options say."""
        for share in self._shares(self._options.processes):
            self._start_one(share)

    def waitables(self) -> list[int | mp_connection.Connection]:
        """What becomes readable when a child says something or dies."""
        return [each for child in self.living() for each in child.waitables()]

    def bury_the_dead(self, reconciler: Reconciler, *, stopping: bool, killed: bool) -> None:
        """Hear the living; hand over the rows of the dead. ``killed``: the dead are of our own hand."""
        for child in self.living():
            child.hear()
            if child.is_alive():
                continue
            child.hear()
            self._bury(child, reconciler, killed=killed)
            if not stopping and child.refusal is None and child.retired_at is None:
                self._plan_respawn(child)

    def respawn(self) -> None:
        """Start successors that are due; retire children that have had their share of jobs."""
        now = time.monotonic()
        for at in [at for at in self._respawn_at if at <= now]:
            self._respawn_at.remove(at)
            for share in self._shares(1):
                try:
                    self._start_one(share)
                except (OSError, EOFError) as exc:
                    self._start_later(exc)
        if self._options.max_jobs_per_child is not None:
            for child in self.living():
                if child[Counter.BUDGET_SPENT] and not child[Counter.HELD] and not child.stopping:
                    child.stop()

    def retire_overdue(self) -> None:
        """Replace children whose handlers ignore their timeout.

        A thread cannot be stopped, so its process is: it claims no more, a successor takes over, its
        other jobs may end, and then it is killed.
        """
        now = time.monotonic()
        if now - self._looked_for_overdue < LOOK_FOR_OVERDUE_EVERY:
            return
        self._looked_for_overdue = now
        patience = self._options.shutdown_timeout.total_seconds()
        for child in self.living():
            overdue = child.overdue(OVERDUE_GRACE)
            if overdue and child.retired_at is None:  # also one that is stopped, and could not end
                logger.warning(
                    "worker process %s is replaced: jobs past their timeout go on in it", child.pid
                )
                child.retire()
                self._respawn_at.append(now)
            if child.retired_at is None:
                continue
            if (overdue and len(overdue) == len(child.slots())) or now - child.retired_at > patience:
                child.condemned = frozenset(overdue)
                child.kill()

    def stop_large(self) -> None:
        """Stop children over ``--max-memory-per-child``: each ends what it runs, and a successor comes.

        One that has claimed nothing yet is left: where Django alone takes more, jobs run all the same.
        """
        most, now = self._options.max_memory_per_child, time.monotonic()
        if most is None or now - self._looked_at_memory < LOOK_AT_MEMORY_EVERY:
            return
        self._looked_at_memory = now
        for child in self.living():
            if child.stopping or not child[Counter.CLAIMED]:
                continue
            size = child.resident()
            if size > most * MEGABYTE:
                logger.info(
                    "worker process %s has %d megabytes: it ends its jobs, and is replaced",
                    child.pid,
                    size // MEGABYTE,
                )
                child.stop()

    def is_budget_spent(self) -> bool:
        """Whether ``--max-jobs`` are claimed and ended."""
        return (
            self._budget_left == 0
            and not self._respawn_at
            and all(child[Counter.BUDGET_SPENT] and not child[Counter.HELD] for child in self.living())
        )

    def are_idle(self) -> bool:
        """Whether every child is there, has nothing in hand, and found nothing when it last looked."""
        return not self._respawn_at and all(
            child.ready and child[Counter.IDLE_SINCE_NS] and not child[Counter.HELD]
            for child in self.living()
        )

    def stop(self) -> None:
        """Let each end what runs."""
        for child in self.living():
            child.stop()

    def kill(self) -> None:
        for child in self.living():
            child.kill()

    def _start_one(self, budget: int | None) -> None:
        self._number += 1
        child = ChildProcess(
            self._context,
            f"{self._worker}/{self._number}",
            f"{self._application_name}/{self._number}",
            self._options,
            budget,
        )
        if self._budget_left is not None and budget is not None:
            self._budget_left -= budget
        with self._lock:
            self._living.append(child)

    def _shares(self, count: int) -> list[int | None]:
        """What each of so many children may claim of ``--max-jobs``, at most ``--max-jobs-per-child``."""
        most = self._options.max_jobs_per_child
        if self._budget_left is None:
            return [most] * count
        each, more = divmod(self._budget_left, count)
        shares = [each + (number < more) for number in range(count)]
        return [share if most is None else min(share, most) for share in shares if share]

    def _bury(self, child: ChildProcess, reconciler: Reconciler, *, killed: bool) -> None:
        with self._lock:
            self._living.remove(child)
            for counter in Counter:
                if counter < Counter.HELD:
                    self._done_before[counter] = self._done_before.get(counter, 0) + child[counter]
        if self._budget_left is not None and child.budget is not None:
            self._budget_left += child.budget - (child[Counter.CLAIMED] - child[Counter.RELEASED])
        how = child.how_it_died()
        self._has_begun = self._has_begun or child.ready
        if child.refusal is not None:
            logger.error("a worker process refused to start: %s", child.refusal)
            self.refusal = child.refusal
        elif not child.ended_cleanly:
            expected = killed or child.retired_at is not None
            if child.ready or expected:
                (logger.warning if expected else logger.error)("worker process %s died (%s)", child.pid, how)
            else:
                self._died_early = True
                logger.error(
                    "worker process %s died before it was ready (%s): it was killed, or ended by something "
                    "that it imports (manage.py, settings, apps)",
                    child.pid,
                    how,
                )
        if child.condemned:
            error = "it went on past its timeout, and its process was ended"
            reconciler.bury(child, error, charged=child.condemned, outcome="timed_out")
        elif killed or child.retired_at is not None:
            reconciler.bury(child, f"process ended ({how})", charged=())
        else:
            reconciler.bury(child, f"process died ({how})", charged=child.started())
        child.close()

    def _plan_respawn(self, child: ChildProcess) -> None:
        """A successor at once, or after a growing wait when children die young."""
        short = not child.ended_cleanly and time.monotonic() - child.started_at < SHORT_LIFE
        self._short_lives = self._short_lives + 1 if short else 0
        self._respawn_at.append(time.monotonic() + self._respawn_wait())

    def _start_later(self, exc: OSError | EOFError) -> None:
        """The machine gave no process (a limit, no memory): those that live go on, and it is tried again.

        Without the fork server: its socket may be what is gone, removed as an old temporary file.
        """
        self._context = multiprocessing.get_context("spawn")
        self._short_lives += 1
        wait = self._respawn_wait()
        logger.error("a worker process could not be started, trying again in %.1f s: %r", wait, exc)
        self._respawn_at.append(time.monotonic() + wait)

    def _respawn_wait(self) -> float:
        if not self._short_lives:
            return 0.0
        return min(FIRST_RESPAWN_WAIT * 2.0 ** min(self._short_lives - 1, 16), LONGEST_RESPAWN_WAIT)


def _forkserver() -> BaseContext:
    """A forkserver that has Django set up, unless the project's start leaves threads or connections.

    A forked process would inherit both in an unusable state; then each child sets Django up itself. So it
    does without a forkserver where there is no place for its socket: on a file system that is read-only.
    """
    leave_path()
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    opened = any(each.connection is not None for each in connections.all(initialized_only=True))
    if threading.active_count() == 1 and not opened:
        context.set_forkserver_preload(["awa_django.worker.preload"])
    return context
