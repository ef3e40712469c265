"""What a job may leave to the end of its process."""

from __future__ import annotations

import atexit
import multiprocessing
import sys
import threading
import time

from awa_django import job


@job
def leave_behind() -> None:
    print("printed")
    atexit.register(sys.stderr.write, "told to say goodbye\n")
    threading.Thread(target=time.sleep, args=(600,)).start()  # nobody waits for it
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    process.start()
    sys.stderr.write(f"daemonic {process.pid};\n")
