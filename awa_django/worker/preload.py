"""Imported by the forkserver, so that each child starts with Django set up (10 to 35 ms, not 1 s).

Where that fails each child sets Django up itself, which may succeed: it has run the project's
``manage.py`` up to its ``if __name__ == "__main__"``. Otherwise it says what is wrong.
"""

from __future__ import annotations

import os
import sys

from awa_django.worker.set_up import set_up, take_path

# Tells the forkserver that it has failed before.
FAILED_VARIABLE = "AWA_WORKER_PRELOAD_FAILED"

take_path()
if os.environ.pop(FAILED_VARIABLE, None) is None:
    try:
        set_up()
        from awa_django.worker import child  # noqa: F401  (the modules a child needs, once for all of them)
        from awa_django.worker.django_connections import disconnect

        disconnect()  # what an app's ready() opened would be in every child
    except Exception:  # noqa: BLE001  (whatever it is, a child meets it too and tells)
        # Django that is half set up cannot be set up again, so the forkserver begins anew without it.
        os.environ[FAILED_VARIABLE] = "yes"
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606  (the command that it was started with)
