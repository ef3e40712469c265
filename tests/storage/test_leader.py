"""Leader: one holder a duty at a time; a lease is renewed, given up, or taken over when it is over."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from awa_django.storage.leader import lead, resign
from tests.conftest import Connect

pytestmark = pytest.mark.django_db

TTL = timedelta(seconds=6)


def leases() -> dict[str, tuple[str | None, float]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT duty, holder, extract(epoch FROM expires_at - now())::float8 FROM awa.leaders "
            "WHERE duty IN ('cron', 'prune')"
        )
        return {duty: (holder, left) for duty, holder, left in cursor.fetchall()}


def test_free_duties_are_taken_and_renewed_under_one_epoch() -> None:
    assert lead(connection, ["cron", "prune"], holder="a", ttl=TTL) == {"cron": 1, "prune": 1}
    assert lead(connection, ["cron"], holder="a", ttl=timedelta(seconds=60)) == {"cron": 1}
    assert leases() == {"cron": ("a", 60.0), "prune": ("a", 6.0)}


def test_held_duty_is_refused_to_another_until_it_is_over() -> None:
    lead(connection, ["cron"], holder="a", ttl=TTL)
    assert lead(connection, ["cron", "prune"], holder="b", ttl=TTL) == {"prune": 1}
    with connection.cursor() as cursor:
        cursor.execute("UPDATE awa.leaders SET expires_at = now() - interval '1 ms' WHERE duty = 'cron'")
    assert lead(connection, ["cron"], holder="b", ttl=TTL) == {"cron": 2}
    assert lead(connection, ["cron"], holder="a", ttl=TTL) == {}


def test_expired_lease_that_nobody_took_is_renewed_under_its_epoch() -> None:
    lead(connection, ["cron"], holder="a", ttl=-TTL)
    assert lead(connection, ["cron"], holder="a", ttl=TTL) == {"cron": 1}


def test_resigning_frees_only_ones_own() -> None:
    lead(connection, ["cron"], holder="a", ttl=TTL)
    lead(connection, ["prune"], holder="b", ttl=TTL)
    resign(connection, holder="a")
    assert leases() == {"cron": (None, 0.0), "prune": ("b", 6.0)}


def test_unknown_duty_is_nobodys() -> None:
    assert lead(connection, ["knitting"], holder="a", ttl=TTL) == {}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_two_that_ask_at_once_never_both_lead(connect: Connect) -> None:
    one, two = connect(autocommit=False), connect()
    assert lead(one, ["cron"], holder="a", ttl=TTL) == {"cron": 1}
    assert lead(two, ["cron"], holder="b", ttl=TTL) == {}  # it does not wait either
    one.commit()
    assert lead(two, ["cron"], holder="b", ttl=TTL) == {}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_resigned_duty_is_free_at_once(connect: Connect) -> None:
    one, two = connect(), connect()
    lead(one, ["cron"], holder="a", ttl=TTL)
    resign(one, holder="a")
    assert lead(two, ["cron"], holder="b", ttl=TTL) == {"cron": 2}
