"""A producer in a process of its own: ``python -m tests.producer``.

It enqueues ``record`` jobs, numbered, and prints each number that was acknowledged. After an error it
does as a web process does at its next request: a new connection, and on with the next number.
"""

from __future__ import annotations

import sys
import threading
import time

import django

# Seconds between two jobs: a steady flow, and no load.
EVERY = 0.01


def main() -> None:
    django.setup()
    from django.db import DatabaseError, InterfaceError, connection

    from tests import handlers

    stopped = threading.Event()

    def stop_at_end_of_input() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    number = 0
    while not stopped.is_set():
        number += 1
        try:
            handlers.record.enqueue(number=number)
        except (DatabaseError, InterfaceError) as exc:
            print("error", type(exc).__name__, *str(exc).split(), flush=True)
            connection.close()
            time.sleep(0.1)
        else:
            print(number, flush=True)
        time.sleep(EVERY)


if __name__ == "__main__":
    main()
