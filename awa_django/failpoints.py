"""Named points on a job's path where tests inject faults; free when off.

``AWA_FAILPOINTS`` in the environment of a worker says what happens where, for example
``after_claim=kill; before_finish=raise*2; in_rescue=delay:0.5; after_handler=exit:7@/tmp/flag``:

- ``kill`` (SIGKILL to the own process), ``stop`` (SIGSTOP), ``exit:CODE``, ``raise``, ``delay:SECONDS``;
- ``*N``: only the first N times in a process;
- ``@PATH``: only once in all processes together, which the new file ``PATH`` marks.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from dataclasses import dataclass, field

VARIABLE = "AWA_FAILPOINTS"

# In the order of a job's path; a name that is not here is refused.
NAMES = frozenset(
    {
        "after_claim",  # claimed and committed, not yet handed to the executor
        "before_handler",
        "before_commit",  # an atomic handler and its completion are written, not yet committed
        "after_handler",  # its outcome is not yet with the completer
        "before_finish",  # a batch is about to be written
        "after_finish",  # a batch is written, the slots not yet free
        "in_claimer",
        "in_completer",
        "in_heartbeat",
        "in_leader",
        "in_promotion",  # a batch is moved, not yet committed
        "in_rescue",  # lost runs are locked, not yet ended
        "in_cron",
        "in_prune",
        "in_listener",
        "in_reconciler",
        "in_drain",
    }
)

_FORM = re.compile(
    r"(?P<name>\w+)=(?P<action>kill|stop|exit|raise|delay)(:(?P<value>[\d.]+))?(\*(?P<times>\d+))?(@(?P<flag>.+))?"
)


class FailpointError(RuntimeError):
    """What the action ``raise`` raises."""


@dataclass(slots=True)
class _Failpoint:
    action: str
    value: float
    times: int | None
    flag: str | None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self) -> bool:
        """Whether it acts now, which counts."""
        with self.lock:
            if self.times is not None:
                if self.times <= 0:
                    return False
                self.times -= 1
            if self.flag is not None:
                try:
                    os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return False
            return True


_failpoints: dict[str, _Failpoint] | None = None


def hit(name: str) -> None:
    """The path comes by the point: do what is set for it, which is nothing outside of tests."""
    if _failpoints:
        _act(name)


def load() -> None:
    """Read the environment; a worker's processes do so when they start. Raises: ValueError."""
    global _failpoints
    _failpoints = parse(os.environ.get(VARIABLE, ""))


def parse(text: str) -> dict[str, _Failpoint]:
    """Raises: ValueError naming the part that is wrong."""
    found = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        match = _FORM.fullmatch(part)
        if match is None or match["name"] not in NAMES:
            raise ValueError(f"{VARIABLE}: {part!r} is no failpoint; see awa_django/failpoints.py")
        found[match["name"]] = _Failpoint(
            action=match["action"],
            value=float(match["value"] or 0),
            times=None if match["times"] is None else int(match["times"]),
            flag=match["flag"],
        )
    return found


def _act(name: str) -> None:
    failpoint = (_failpoints or {}).get(name)
    if failpoint is None or not failpoint.is_due():
        return
    match failpoint.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "exit":
            os._exit(int(failpoint.value))
        case "delay":
            time.sleep(failpoint.value)
        case _:
            raise FailpointError(f"failpoint {name}")
