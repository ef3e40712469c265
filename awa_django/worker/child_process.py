"""ChildProcess: the supervisor's view of one child, alive or dead."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from multiprocessing import connection as mp_connection
from multiprocessing.context import BaseContext
from pathlib import Path

from awa_django.storage.rows import Attempt
from awa_django.worker.child import ENDED, READY, REFUSED, STOP, WAKE, ChildSpec, run_child
from awa_django.worker.holdings import slot_count
from awa_django.worker.options import WorkerOptions
from awa_django.worker.slots import Counter, Phase, Slot, SlotTable


class ChildProcess:
    """Starts a child and watches it.

    Its death is read from a descriptor of our own: what ``multiprocessing`` says of an exit code
    goes through the forkserver, which may itself be killed while the child lives.
    """

    def __init__(
        self,
        context: BaseContext,
        name: str,
        application_name: str,
        options: WorkerOptions,
        budget: int | None,
    ) -> None:
        self.name = name
        self.application_name = application_name
        self.started_at = time.monotonic()
        self.ready = False
        self.refusal: str | None = None
        self.stopping = False
        self._has_ended = False
        self.budget = budget
        self.retired_at: float | None = None
        self.condemned: frozenset[Attempt] = frozenset()
        """The runs for which it was killed: past their timeout, and not to be stopped otherwise."""
        slots = SlotTable.create(slot_count(options.concurrency))
        self._reader = slots.reader()
        self._send_lock = threading.Lock()
        self._pipe, theirs = context.Pipe()
        spec = ChildSpec(
            name=name,
            application_name=application_name,
            options=options,
            slots=slots,
            budget=budget,
        )
        self._process = context.Process(target=run_child, args=(spec, theirs), name=name)  # type: ignore[attr-defined]
        self._process.start()
        theirs.close()
        self.pid: int = self._process.pid
        self._pidfd = _open_pidfd(self.pid)

    def __getitem__(self, counter: Counter) -> int:
        return self._reader[counter]

    def waitables(self) -> list[int | mp_connection.Connection]:
        """What becomes readable when the child says something or dies."""
        return [self._pipe] if self._pidfd is None else [self._pipe, self._pidfd]

    def hear(self) -> None:
        """Take in what the child has said."""
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                word, why = self._pipe.recv()
                if word == READY:
                    self.ready = True
                elif word == REFUSED:
                    self.refusal = why
                elif word == ENDED:
                    self._has_ended = True

    def is_alive(self) -> bool:
        if self._pidfd is not None:
            return not mp_connection.wait([self._pidfd], timeout=0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, 0)
            return bool(self._process.is_alive())
        return False

    def is_frozen(self) -> bool:
        """Whether the process is stopped (SIGSTOP): its leases must not be kept alive for ever."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] in ("T", "t")

    def resident(self) -> int:
        """Bytes of memory that it has, those that it shares included; 0 when it is gone."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def slots(self) -> list[Slot]:
        """What it holds; still readable after its death."""
        return self._reader.slots()

    def started(self) -> list[Attempt]:
        """The runs whose handlers have started (or ended, their finish not confirmed)."""
        return [slot.attempt for slot in self.slots() if slot.phase != Phase.HELD]

    def overdue(self, grace: float) -> list[Attempt]:
        """The runs that go on ``grace`` seconds past their timeout."""
        limit = time.monotonic() - grace
        return [
            slot.attempt
            for slot in self.slots()
            if slot.phase == Phase.RUNNING and slot.must_end_at and slot.must_end_at < limit
        ]

    def mark_cancelled(self, slot: Slot) -> None:
        """Ask the handler in the slot to stop."""
        self._reader.mark_cancelled(slot)

    def wake(self) -> None:
        """There may be something to claim."""
        self._say(WAKE)

    def stop(self) -> None:
        """Claim no more, give back what has not started, end what runs, then exit."""
        self.stopping = True
        self._say(STOP)

    def retire(self) -> None:
        """Stop it while a successor takes over."""
        self.retired_at = time.monotonic()
        self.stop()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    @property
    def ended_cleanly(self) -> bool:
        """Whether it died as told, with nothing left in hand.

        By its own word: a signal to the whole process group ends the forkserver, which knows exit codes.
        """
        return self.stopping and self._has_ended and not self.slots()

    def how_it_died(self) -> str:
        """'signal 11' or 'exit code 1', as far as can be known."""
        self._process.join(1.0)
        code = self._process.exitcode
        if code is None:
            return "for an unknown reason"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def close(self) -> None:
        """Free the descriptors; the slots stay readable."""
        self._pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _say(self, word: str) -> None:
        # A dead child's pipe is broken; that it is dead is noticed elsewhere.
        with self._send_lock, contextlib.suppress(OSError):
            self._pipe.send(word)


def _open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where there is no such thing."""
    if not hasattr(os, "pidfd_open"):
        return None
    with contextlib.suppress(OSError):
        return os.pidfd_open(pid)
    return None
