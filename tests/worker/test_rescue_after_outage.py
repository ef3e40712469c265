"""Where jobs were out of reach for everybody, the living beat first: nobody is rescued for an outage."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from awa_django.storage.heartbeat import heartbeat
from awa_django.storage.rows import Attempt
from awa_django.worker.rescuer import Rescuer
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job
from tests.waiting import wait_until
from tests.worker.conftest import AtWill, Sessions

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


@pytest.fixture
def rescuer(make_session: Sessions, leader: AtWill) -> Rescuer:
    return Rescuer(
        make_session(),
        leader,
        interval=timedelta(seconds=0.1),
        stale_after=timedelta(seconds=90),
        worker="leader",
    )


def silent() -> int:
    job_id = insert_job("running", run_lease=3)
    update_job(job_id, heartbeat_at="now() - interval '91 seconds'")
    return job_id


def state(job_id: int) -> str:
    return str(reload_job(job_id).state)


def test_table_that_was_locked_for_long(
    rescuer: Rescuer, connect: Connect, make_session: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescuer, "_grace", 0.2, raising=False)
    living, dead = silent(), silent()
    locking = connect()
    with locking.transaction():
        locking.execute("LOCK TABLE awa.jobs_hot IN ACCESS EXCLUSIVE MODE")
        looking = threading.Thread(target=rescuer.tick)
        looking.start()  # it waits first in the queue for the lock
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'awa.jobs_hot'::regclass"
        wait_until(lambda: locking.execute(waiting).fetchone() == (1,))
        time.sleep(0.6)  # longer than an interval and the grace for heartbeats
    looking.join(60)
    assert (state(living), state(dead)) == ("running", "running")
    with make_session().use() as connection:
        heartbeat(connection, [Attempt(living, 3)])
    rescuer.tick()
    assert (state(living), state(dead)) == ("running", "retryable")


def test_outage_is_told_by_the_time_since_the_last_look(
    rescuer: Rescuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = silent()
    monkeypatch.setattr(rescuer, "_looked_at", time.monotonic() - 60, raising=False)
    assert rescuer.tick() == 5.0
    assert state(job_id) == "running"
    assert rescuer.tick() is None
    assert state(job_id) == "retryable"
