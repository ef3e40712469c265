"""Imported by the forkserver, so that each child starts with Django set up (10 to 35 ms, not 1 s).

An ImportError here is swallowed and any other error would end the forkserver: the child then sets
Django up itself and says what is wrong.
"""

from __future__ import annotations

import contextlib

import django

with contextlib.suppress(Exception):
    django.setup()
    from awa_django.worker import child  # noqa: F401  (the modules a child needs, once for all of them)
    from awa_django.worker.django_connections import disconnect

    disconnect()  # what an app's ready() opened would be in every child
