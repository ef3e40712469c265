"""Django's own connections: looked after round each job as Django does round a request."""

from __future__ import annotations

import threading

from django.db import close_old_connections, reset_queries
from django.db.backends.signals import connection_created


class _Thread(threading.local):
    has_connected = False


_thread = _Thread()


def tidy() -> None:
    """For every alias of this thread: forget its queries, and close what is old or broken.

    A thread that has never connected has nothing to look after: it may run 100,000 jobs a second.
    """
    if _thread.has_connected:
        reset_queries()
        close_old_connections()


def _note(**_: object) -> None:
    _thread.has_connected = True


connection_created.connect(_note, dispatch_uid="awa_django.worker.django_connections")
