"""django-tasks-db: the database backend of django.tasks, its worker polling every 50 ms."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from urllib.parse import parse_qs, unquote, urlsplit

import django
from django.conf import settings
from django.core.management import call_command

from benchmarks.marks import mark
from benchmarks.peers.protocol import Queue, serve

POLL_SECONDS = 0.05
url = urlsplit(os.environ["DATABASE_URL"])
given = parse_qs(url.query)
settings.configure(
    INSTALLED_APPS=["django_tasks_db"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.path.lstrip("/"),
            "USER": unquote(url.username or "") or given.get("user", [""])[0],
            "PASSWORD": unquote(url.password or "") or given.get("password", [""])[0],
            "HOST": url.hostname or given.get("host", [""])[0],
            "PORT": url.port or given.get("port", [""])[0],
            "CONN_MAX_AGE": 600,
        }
    },
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    USE_TZ=True,
)
django.setup()
sys.modules["run_django_tasks_db"] = sys.modules[__name__]  # where the worker will import the task from

try:
    from django.tasks import task
except ImportError:  # before Django 6.0 it is a package
    from django_tasks import task  # type: ignore[no-redef]


@task()
def nothing(number: int) -> None:
    mark(number)


nothing.func.__module__ = "run_django_tasks_db"


def enqueue_many(count: int, at: float | None) -> None:
    """One by one: there is no other way."""
    job = nothing.using(run_after=datetime.fromtimestamp(at, UTC)) if at else nothing
    for number in range(count):
        job.enqueue(number)


def work() -> None:
    call_command("db_worker", interval=POLL_SECONDS, reload=False, startup_delay=False)


if __name__ == "__main__":
    serve(
        Queue(
            setup=lambda: call_command("migrate", verbosity=0),
            enqueue=nothing.enqueue,
            enqueue_many=enqueue_many,
            work=lambda: call_command(
                "db_worker", interval=float(POLL_SECONDS), reload=False, startup_delay=False
            ),
        )
    )
