"""Guard: stops a server that no process uses any more. Run as a file, without anything installed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# Longest recovery or shutdown waited for, in seconds.
PATIENCE = 300


def postmaster(data: Path) -> int | None:
    """The pid of the server that runs on these data, or None."""
    pid = pid_on_file(data)
    if pid is None:
        return None
    with contextlib.suppress(OSError):  # no /proc: believe the file
        return pid if os.fsencode(data) in Path(f"/proc/{pid}/cmdline").read_bytes() else None
    return pid


def pid_on_file(data: Path) -> int | None:
    """The pid that the server's file names, if there is such a process: it may be any by now."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid


def stand_guard(arguments: Sequence[str]) -> None:
    """Wait until no process uses the server, then stop it. Its parent returns at once."""
    own_lock, home, data = int(arguments[0]), Path(arguments[1]), Path(arguments[2])
    if os.fork():
        os._exit(0)
    os.setsid()
    users = os.open(home / "users.lock", os.O_RDWR)
    fcntl.flock(users, fcntl.LOCK_EX)
    if (pid := postmaster(data)) is not None:
        os.kill(pid, signal.SIGINT)  # a "fast" shutdown: sessions end, data are written
        give_up_at = time.monotonic() + PATIENCE
        while postmaster(data) == pid and time.monotonic() < give_up_at:
            time.sleep(0.02)
    # Before the users' lock: who gets that one next must find that no guard waits.
    os.close(own_lock)
    os.close(users)


if __name__ == "__main__":
    stand_guard(sys.argv[1:])
