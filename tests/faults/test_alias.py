"""The queue on an alias of its own: one setting and our router, and everything goes there."""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.clusters import Cluster
from tests.conftest import PROJECT_DIR
from tests.fault_report import Observe

PROGRAM = """
import django; django.setup()
from django.db import transaction
from awa_django.models import HotJob, Job
from tests import handlers

class Undo(Exception): pass

try:
    with transaction.atomic(using="queue"):
        handlers.nothing.enqueue(number=1)
        raise Undo
except Undo:
    pass
with transaction.atomic(using="default"):
    handlers.nothing.enqueue(number=2)
    transaction.set_rollback(True, using="default")
with transaction.atomic(using="queue"):
    handlers.nothing.enqueue(number=3)
    handlers.nothing.using(delay=3600).enqueue(number=4)
assert HotJob.objects.db == Job.objects.db == "queue"
print(sorted(Job.objects.values_list("args__number", flat=True)), HotJob.objects.count())
"""


@pytest.mark.fault("U59", injected="a project with its queue on an alias of its own, migrated, used and run")
def test_queue_on_an_alias_of_its_own(own_cluster: Cluster, observe: Observe) -> None:
    with own_cluster.connect() as server:
        for name in ("application", "queue"):
            server.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    env = {
        **os.environ,
        "DATABASE_URL": named(own_cluster.url, "application"),
        "QUEUE_URL": named(own_cluster.url, "queue"),
        "DJANGO_SETTINGS_MODULE": "tests.alias_settings",
        "PYTHONPATH": str(PROJECT_DIR),
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], env=env, cwd=PROJECT_DIR, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    run("manage.py", "migrate")
    run("manage.py", "migrate", "--database", "queue")
    assert "awa.W001" in run("manage.py", "check")
    has_schema = "SELECT count(*) FROM pg_namespace WHERE nspname = 'awa'"
    with psycopg.connect(env["DATABASE_URL"]) as application, psycopg.connect(env["QUEUE_URL"]) as queue:
        assert application.execute(has_schema).fetchone() == (0,)
        assert queue.execute(has_schema).fetchone() == (1,)
    # Rolled back with the queue's transaction, and not with another's.
    assert run("-c", PROGRAM).strip() == "[2, 3, 4] 2"
    run("manage.py", "awa_worker", "--drain")
    run("manage.py", "awa_doctor", "--database", "queue")
    with psycopg.connect(env["QUEUE_URL"]) as queue:
        states = queue.execute("SELECT state::text, count(*) FROM awa.jobs GROUP BY 1 ORDER BY 1").fetchall()
    assert states == [("completed", 2), ("scheduled", 1)]
    observe(
        "the schema is on the alias only; jobs commit and roll back with its transactions; "
        "worker, models and doctor go there; a check says that the application's models live elsewhere"
    )


def named(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))
