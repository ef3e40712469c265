"""What an operator does to queues, and what is known of them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from awa_django import operations
from awa_django.models import QueueMeta
from awa_django.storage.insert import database_now
from awa_django.storage.queues import known_names, known_queues
from awa_django.storage.status import queue_status
from tests.factories import insert_job

pytestmark = pytest.mark.django_db


def later() -> datetime:
    return timezone.now() + timedelta(days=1)


def test_pause_and_resume_say_whether_they_changed_anything() -> None:
    assert operations.pause_queue("mail", by="ann").changed
    meta = QueueMeta.objects.get(pk="mail")
    assert (meta.paused, meta.paused_by, meta.paused_until) == (True, "ann", None)
    assert not operations.pause_queue("mail", by="bob").changed
    until = later()
    assert operations.pause_queue("mail", by="bob", until=until).changed
    again = QueueMeta.objects.get(pk="mail")
    assert (again.paused_by, again.paused_until, again.paused_at) == ("bob", until, meta.paused_at)
    assert operations.resume_queue("mail") == operations.QueueResult("mail", paused=False, changed=True)
    assert not operations.resume_queue("mail").changed
    assert not operations.resume_queue("never seen").changed
    assert (QueueMeta.objects.get(pk="mail").paused, QueueMeta.objects.count()) == (False, 1)


def test_pause_again_after_its_end_has_passed() -> None:
    operations.pause_queue("mail", until=later())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE awa.queue_meta SET paused_until = now() - interval '1 hour'")
    assert operations.pause_queue("mail", until=None).changed


@pytest.mark.parametrize("ago", [0, 1, 86400])
def test_pause_refuses_an_end_that_has_passed(ago: int) -> None:
    """It would be over at once, and said that the queue is paused."""
    until = database_now(connection) - timedelta(seconds=ago)
    with pytest.raises(ValueError, match="until has passed"):
        operations.pause_queue("mail", until=until)
    assert not QueueMeta.objects.exists()


def test_pause_refuses_a_naive_end_and_a_wrong_name() -> None:
    with pytest.raises(ValueError, match="aware"):
        operations.pause_queue("mail", until=datetime(2030, 1, 1))
    with pytest.raises(ValueError, match="1 to 200"):
        operations.pause_queue("")
    with pytest.raises(ValueError, match="1 to 200"):
        operations.resume_queue("x" * 201)


def test_queues_are_known_from_every_place_and_counted_to_a_cap() -> None:
    for _ in range(3):
        insert_job(queue="full")
    insert_job("running", queue="full")
    insert_job("scheduled", queue="later")
    operations.pause_queue("paused", by="ann")
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO awa.job_kinds (kind, queue) VALUES ('k', 'by kind'), ('l', NULL)")
        cursor.execute(
            "INSERT INTO awa.runtime_instances (name, hostname, pid, version, queues) "
            "VALUES ('w', 'h', 1, '1', '{served}')"
        )
        cursor.execute(
            "INSERT INTO awa.cron_jobs (name, cron_expr, kind, queue) VALUES ('c', '@daily', 'k', 'cron')"
        )
        cursor.execute(
            "INSERT INTO awa.queue_meta (queue, paused, paused_until) VALUES ('endless', true, 'infinity')"
        )
    names = known_queues(connection, limit=100)
    assert names == ["by kind", "cron", "endless", "full", "later", "paused", "served"]
    assert known_queues(connection, limit=2) == names[:2]
    assert known_names(connection, limit=100).waiting == ["full", "later"]
    insert_job("failed", queue="only failed")
    soon = timedelta(hours=1)
    others = queue_status(connection, names, cap=2, soon=soon, with_others=True)
    assert [queue.queue for queue in others] == sorted([*names, "only failed"])
    overview = {queue.queue: queue for queue in queue_status(connection, names, cap=2, soon=soon)}
    assert sorted(overview) == names
    assert (overview["full"].available, overview["full"].running, overview["full"].deferred) == (2, 1, 0)
    assert overview["later"].deferred == 1
    assert (overview["paused"].paused, overview["paused"].paused_by) == (True, "ann")
    assert (overview["endless"].paused, overview["endless"].paused_until) == (True, None)
