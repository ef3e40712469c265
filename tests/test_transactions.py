"""A job is there if the transaction is: requests, savepoints, and connections without autocommit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from awa_django import Unique, UniqueConflict, job, own_transaction, registry
from awa_django.enqueue import apart
from tests.conftest import Connect
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


def note(number: int) -> None: ...


NOTE = job(kind="transactions.note")(note)
ONCE = NOTE.using(unique=Unique(args=True))


def order(request: HttpRequest) -> HttpResponse:
    Group.objects.create(name="order")
    NOTE.enqueue(1)
    NOTE.enqueue_many([{"number": 2}, {"number": 3}])
    if "fail" in request.GET:
        raise LookupError("after the order")
    return HttpResponse("done")


urlpatterns = [path("order/", order)]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    registry.register(NOTE.handler)
    yield
    registry.unregister(NOTE.handler)


@pytest.fixture
def numbers(connect: Connect) -> Any:
    """The numbers of the jobs that another session sees."""
    session = connect()

    def committed() -> list[int]:
        rows = session.execute("SELECT (args ->> 'number')::int FROM awa.jobs ORDER BY id").fetchall()
        return [number for (number,) in rows]

    return committed


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    with override_settings(ROOT_URLCONF=__name__):
        yield


@pytest.mark.fault("U28", injected="a view under ATOMIC_REQUESTS that enqueues and then raises")
@pytest.mark.usefixtures("atomic_requests")
def test_a_request_that_fails_leaves_no_job(numbers: Any) -> None:
    client = Client(raise_request_exception=False, SERVER_NAME="localhost")
    assert client.get("/order/?fail").status_code == 500
    assert (numbers(), Group.objects.count()) == ([], 0)
    assert client.get("/order/").status_code == 200
    assert (numbers(), Group.objects.count()) == ([1, 2, 3], 1)


@pytest.mark.fault("U28", injected="nested atomic blocks, of which some are rolled back")
def test_jobs_share_the_fate_of_their_savepoint(numbers: Any) -> None:
    with transaction.atomic():
        NOTE.enqueue(1)
        try:
            with transaction.atomic():
                NOTE.enqueue(2)
                with transaction.atomic():
                    NOTE.using(delay=60).enqueue(3)
                raise LookupError
        except LookupError:
            NOTE.enqueue(4)
        with transaction.atomic():
            NOTE.enqueue(5)
        assert numbers() == []
    assert numbers() == [1, 4, 5]


@pytest.mark.fault("U28", injected="a connection without autocommit, rolled back and committed by hand")
def test_without_autocommit_the_commit_decides(numbers: Any) -> None:
    transaction.set_autocommit(False)
    try:
        NOTE.enqueue(1)
        NOTE.using(delay=60).enqueue(2)
        transaction.rollback()
        NOTE.enqueue(3)
        assert numbers() == []
        transaction.commit()
        assert numbers() == [3]
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@pytest.mark.fault(
    "U29", injected="an alert is enqueued in its own transaction, then the request's is rolled back"
)
def test_an_alert_stays_when_the_transaction_is_rolled_back(numbers: Any) -> None:
    try:
        with transaction.atomic():
            NOTE.enqueue(1)
            with own_transaction():
                NOTE.enqueue(2)
                NOTE.enqueue_many([{"number": 3}])
                assert numbers() == []
            assert numbers() == [2, 3]
            Group.objects.create(name="rolled back")
            raise LookupError
    except LookupError:
        NOTE.enqueue(4)
    assert (numbers(), Group.objects.count()) == ([2, 3, 4], 0)


def test_a_failure_in_a_transaction_of_its_own_leaves_nothing_of_it(numbers: Any) -> None:
    connection.ensure_connection()
    before = connection.connection
    with transaction.atomic():
        NOTE.enqueue(1)
        try:
            with own_transaction():
                NOTE.enqueue(2)
                raise LookupError
        except LookupError:
            NOTE.enqueue(3)
    assert numbers() == [1, 3]
    assert connection.connection is before


def test_its_connection_is_closed(numbers: Any, connect: Connect) -> None:
    session = connect()

    def sessions() -> set[int]:
        found = session.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return {pid for (pid,) in found}

    before = sessions()
    for number in range(5):
        with own_transaction():
            NOTE.enqueue(number)
    wait_until(lambda: sessions() <= before, message="sessions are left")


def test_a_key_of_the_open_transaction_is_not_waited_for_for_ever(
    numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "LONGEST_LOCK_WAIT_MS", 50)
    with transaction.atomic():
        held = ONCE.enqueue(1)
        with pytest.raises(UniqueConflict), own_transaction():
            ONCE.enqueue(1)
        assert not ONCE.enqueue(1).created
    assert held.created
    assert numbers() == [1]
