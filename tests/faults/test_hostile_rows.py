"""F85, F86: what is in a row is data: no part of a statement, and nothing that is imported or called."""

from __future__ import annotations

import base64
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from awa_django import operations, registry, schedules
from awa_django.jobs import job
from awa_django.models import HotJob, Job, QueueMeta
from awa_django.testing.running import drain
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

HARM = "DROP TABLE fault_canary"
TEXTS = (
    f"'; {HARM}; --",
    f'"; {HARM}; --',
    f"\\'; {HARM}; --",
    f"$$; {HARM}; $$",
    f"x') OR (1 = 1; {HARM}",
    "' OR '1' = '1",
    "%s %(id)s %% %",
    "{0} {x} :x $1 ?\\",
    '"awa"."jobs_hot"',
    "é" * 32,  # of 64 bytes: one more than an identifier has
    "$.** ? (@ == 1)",
)


@pytest.mark.django_db
@pytest.mark.fault(
    "F85", injected="quotes, dollars, placeholders, operators and 64-byte names wherever a name goes"
)
def test_no_text_becomes_a_part_of_a_statement(admin_client: Client, observe: Observe) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE fault_canary ()")
        cursor.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'awa'::regnamespace")
        [relations] = cursor.fetchone()
    ids = []
    for text in TEXTS:
        handler = job(kind=text)(lambda value=None: None)
        queued = handler.using(queue=text, tags=[text], metadata={text: text}, unique=None)
        ids.append(queued.enqueue(value={text: text}).id)
    for job_id, text in zip(ids, TEXTS, strict=True):
        assert_only(admin_client, job_id, text)
        assert operations.pause_queue(text, by=text).changed
        assert drain(text) == []
        assert operations.resume_queue(text).changed
        assert operations.cancel_matching(kind=text, queue=text, tags=[text], by=text, reason=text) == 1
        assert operations.retry(job_id).changed == (job_id,)
        assert [run.id for run in drain(text)] == [job_id]
        assert operations.delete(job_id).changed == (job_id,)
        registry.unregister(registry.get(text))
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES (%s, '@daily', %s)", [text, text]
            )
        assert schedules.pause(text, by=text)
        assert schedules.resume(text)
        assert Job.objects.filter(pk=schedules.run_now(text)).values_list("kind", flat=True).get() == text
    assert QueueMeta.objects.filter(queue__in=TEXTS, paused=False).count() == len(TEXTS)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'awa'::regnamespace")
        assert cursor.fetchone() == (relations,)
        cursor.execute("SELECT FROM fault_canary")
    observe(f"{len(TEXTS)} texts: each finds its own job and no other; no table is gone, none is new")


def assert_only(client: Client, job_id: int, text: str) -> None:
    """Each way in which a list can be asked for the text finds this job, and no other."""
    url = reverse(f"admin:awa_{'job' if job_id % 2 else 'hotjob'}_changelist")
    queries = [{"queue": text}, {"kind": text}, {"q": text}, {"q": f"tag:{text}"}]
    if not set(".=") & set(text):  # which divide names and value
        queries.append({"q": f"arg:value.{text}={text}"})
    for query in queries:
        page = client.get(url, query)
        assert [each.pk for each in page.context["cl"].result_list] == [job_id], query
    places = dict.fromkeys(("o", "after", "before", "from", "state"), text)
    assert client.get(url, places, follow=True).status_code == 200
    assert HotJob.objects.filter(args__value__has_key=text).count() == 1


@pytest.mark.django_db
@pytest.mark.fault("F85", injected="lookups within arguments, by parameters written by hand")
def test_no_lookup_can_be_written_by_hand(admin_client: Client) -> None:
    for text in TEXTS[:2]:
        url = reverse("admin:awa_hotjob_changelist")
        assert admin_client.get(url, {f"args__{text}": text}).status_code == 400


class Touch:
    """Unpickled, it makes a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.acceptance
@pytest.mark.fault(
    "F86", injected="by SQL: kinds that name importable functions; pickles and object tags as arguments"
)
def test_nothing_that_is_stored_is_imported_or_called(
    database: Database, start_worker: StartWorker, tmp_path: Path, observe: Observe
) -> None:
    canary = tmp_path / "canary"
    pickled = base64.b64encode(pickle.dumps(Touch(canary))).decode()
    objects = {
        "pickle": pickled,
        "py/object": "tests.faults.test_hostile_rows.Touch",
        "py/reduce": [{"py/function": "os.mkdir"}, {"py/tuple": [str(canary)]}],
        "__reduce__": ["os.mkdir", [str(canary)]],
        "!!python/object/apply:os.mkdir": [str(canary)],
        "__class__": "Touch",
        "$type": "os.mkdir",
    }
    kinds = {
        "os.mkdir": {"path": str(canary)},
        "pathlib:Path.mkdir": {"self": str(canary)},
        "builtins.exec": {"source": f"import os; os.mkdir({str(canary)!r})"},
        "tests.handlers.effect": {"name": "ran"},  # a function, and no handler
        "tests.handlers:record": {"number": 1},  # a handler, by another name
        "this": {},  # says something as it is imported
        "this.s": {},
        "../../tests/handlers.py": {},
        "__import__('os').mkdir": objects,
        pickled: objects,
    }
    for kind, args in kinds.items():
        database.rows(
            "INSERT INTO awa.jobs (kind, args) VALUES (%s, %s) RETURNING id", kind, json.dumps(args)
        )
    [(known,)] = database.rows(
        "INSERT INTO awa.jobs (kind, args, metadata) VALUES ('tests.handlers.echo', %s, %s) RETURNING id",
        json.dumps({"value": [objects, pickled]}),
        json.dumps(objects),
    )
    worker = start_worker()
    put_back = "SELECT count(*) FROM awa.jobs WHERE metadata ? 'awa:unknown_kind'"
    wait_until(lambda: database.value(put_back) == len(kinds), message=worker.text)
    wait_until(lambda: database.job(known)["state"] == "completed", message=worker.text)
    assert database.job(known)["result"] == [objects, pickled]
    assert worker.stop() == 0
    assert not canary.exists()
    assert database.effects("ran") == database.effects("record") == []
    assert "Zen of Python" not in worker.text()
    observe(
        f"{len(kinds)} kinds were put back as unknown; a handler got the objects as the JSON that they are"
    )
