"""What is before the places of the claims: the first job of each priority that somebody may claim."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from awa_django.storage.claim import (
    BEGINNING,
    LOWEST_PRIORITY,
    Place,
    left_behind,
    newest_left_behind,
)
from tests.conftest import Connect
from tests.factories import insert_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

EARLY, HERE, LATER = "2020-01-01T00:00Z", "2020-01-02T00:00Z", "2020-01-03T00:00Z"
AT = datetime(2020, 1, 2, tzinfo=UTC)


def place(priority: int = 2, job_id: int = 10**15) -> Place:
    return Place(priority, AT, job_id)


def found(
    connect: Connect, *places: Place, excluded_kinds: tuple[str, ...] = (), since: tuple[Place, ...] = ()
) -> list[Place]:
    jobs, page_count = left_behind(connect(), "default", places or (place(),), excluded_kinds, since=since)
    assert 0 < page_count < 20
    return sorted(jobs)


@pytest.mark.parametrize(
    "columns",
    [
        {"run_at": LATER},
        {"run_at": EARLY, "queue": "mail"},
        {"run_at": EARLY, "kind": "left.out"},
        {"run_at": "2999-01-01T00:00Z", "priority": 1},
    ],
    ids=["after the place", "of another queue", "of an excluded kind", "not due"],
)
def test_what_no_claim_leaves_out_is_not_found(connect: Connect, columns: dict[str, Any]) -> None:
    insert_job(**columns)
    assert found(connect, excluded_kinds=("left.out",)) == []


def test_running_job_is_not_found(connect: Connect) -> None:
    insert_job("running", run_at=EARLY)
    assert found(connect) == []


def test_first_job_before_the_place_is_found(connect: Connect) -> None:
    first = insert_job(run_at=EARLY)
    insert_job(run_at=EARLY)
    assert found(connect) == [Place(2, datetime(2020, 1, 1, tzinfo=UTC), first - 1)]


def test_jobs_of_one_instant_are_told_apart_by_their_ids(connect: Connect) -> None:
    before, here, behind = (insert_job(run_at=HERE) for _ in range(3))
    assert found(connect, place(job_id=before)) == []
    assert found(connect, place(job_id=here)) == [Place(2, AT, before - 1)]
    assert found(connect, place(job_id=behind)) == [Place(2, AT, before - 1)]


def test_each_priority_has_its_place_and_others_are_found_wherever_they_stand(connect: Connect) -> None:
    for priority in (BEGINNING.priority + 1, 1, 2, 4, LOWEST_PRIORITY):
        insert_job(priority=priority, run_at=LATER)
    places = found(connect, place(1), place(4))
    assert [each.priority for each in places] == [BEGINNING.priority + 1, 2, LOWEST_PRIORITY]
    old = insert_job(priority=4, run_at=EARLY)
    places = found(connect, place(1), place(4))
    assert Place(4, datetime(2020, 1, 1, tzinfo=UTC), old - 1) in places
    assert len(places) == 4


def test_part_begins_behind_a_row_of_the_priority(connect: Connect) -> None:
    before, at, behind = (insert_job(run_at=HERE) for _ in range(3))
    insert_job(priority=4, run_at=EARLY)
    others = place(4)
    since = place(job_id=at)
    assert found(connect, place(), others, since=(since,))[0] == Place(2, AT, behind - 1)
    assert found(connect, place(), others, since=(since._replace(job_id=before - 1),))[0].job_id == before - 1
    # A priority that has no such row is searched from its beginning.
    assert [each.priority for each in found(connect, place(), others, since=(since,))] == [2, 4]


def test_part_that_begins_behind_the_place_is_empty(connect: Connect) -> None:
    """Claims have gone back."""
    insert_job(run_at=EARLY)
    insert_job(run_at=LATER)
    since = place()._replace(run_at=datetime(2020, 1, 4, tzinfo=UTC))
    assert found(connect, place(), since=(since,)) == []


def test_a_locked_job_is_found_and_a_look_locks_none(connect: Connect) -> None:
    """Or a claim beside the look would pass over what it finds."""
    job_id = insert_job(run_at=EARLY)
    locker, looker, claimer = (connect(autocommit=False) for _ in range(3))
    locker.execute("SELECT FROM awa.jobs_hot FOR UPDATE")
    assert len(left_behind(looker, "default", [place()], [])[0]) == 1
    locker.rollback()
    taken = claimer.execute("SELECT id FROM awa.jobs_hot FOR UPDATE SKIP LOCKED").fetchall()
    assert taken == [(job_id,)]


def test_search_reads_in_the_order_of_the_index_whatever_the_statistics_say(connect: Connect) -> None:
    connection = connect(autocommit=False)
    left_behind(connection, "default", [place()], [])
    assert connection.execute("SHOW enable_sort").fetchone() == ("off",)


def newest(connect: Connect, newer_than: int | None, **places: list[Place]) -> dict[str, list[Place]]:
    found, highest_id = newest_left_behind(
        connect(), places or {"default": [place()]}, ["left.out"], newer_than=newer_than
    )
    assert (highest_id,) == connect().execute("SELECT last_value FROM awa.jobs_id_seq").fetchone()
    return found


def test_of_the_newest_the_first_before_each_place_is_found(connect: Connect) -> None:
    insert_job(run_at=EARLY)
    known = insert_job(run_at=HERE)
    first, _ = insert_job(run_at=HERE), insert_job(run_at=HERE)
    urgent = insert_job(run_at=EARLY, priority=1)
    mail = insert_job(run_at=EARLY, queue="mail")
    found = newest(connect, known, default=[place(), place(1)], mail=[place()], other=[place()])
    assert {queue: sorted(jobs) for queue, jobs in found.items()} == {
        "default": [Place(1, datetime(2020, 1, 1, tzinfo=UTC), urgent - 1), Place(2, AT, first - 1)],
        "mail": [Place(2, datetime(2020, 1, 1, tzinfo=UTC), mail - 1)],
    }
    assert newest(connect, None) == {}


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        ("available", {"run_at": LATER}),
        ("available", {"run_at": HERE, "id": 10**15 + 1}),
        ("available", {"run_at": EARLY, "queue": "mail"}),
        ("available", {"run_at": EARLY, "kind": "left.out"}),
        ("running", {"run_at": EARLY}),
    ],
    ids=[
        "after the place",
        "of its instant and later",
        "other queue",
        "excluded kind",
        "running",
    ],
)
def test_of_the_newest_no_other_is_found(connect: Connect, state: str, columns: dict[str, Any]) -> None:
    insert_job(state, **columns)
    assert newest(connect, 0) == {}


def test_of_the_newest_those_of_a_priority_without_a_place_are_found(connect: Connect) -> None:
    job_id = insert_job(run_at=LATER, priority=1)
    assert newest(connect, 0) == {"default": [Place(1, datetime(2020, 1, 3, tzinfo=UTC), job_id - 1)]}


def test_known_priorities_and_others_are_searched_by_themselves(connect: Connect) -> None:
    for priority in (1, 2):
        insert_job(run_at=EARLY, priority=priority)

    def priorities(*, of_known: bool = True, of_others: bool = True) -> list[int]:
        found, _ = left_behind(connect(), "default", [place()], [], of_known=of_known, of_others=of_others)
        return [each.priority for each in found]

    assert priorities(of_others=False) == [2]
    assert priorities(of_known=False) == [1]


def test_of_the_newest_none_is_found_that_is_not_due(connect: Connect) -> None:
    """A clock may have been set back."""
    insert_job(run_at="2999-01-01T00:00Z")
    assert newest(connect, 0, default=[Place(2, datetime(2999, 1, 2, tzinfo=UTC), 0)]) == {}


def test_highest_id_of_an_unused_sequence_is_zero(connect: Connect) -> None:
    connection = connect(autocommit=False)
    connection.execute("ALTER SEQUENCE awa.jobs_id_seq RESTART")
    connection.execute("SELECT nextval('awa.jobs_id_seq')")
    assert newest_left_behind(connection, {}, [], newer_than=None) == ({}, 1)
    connection.execute("SELECT setval('awa.jobs_id_seq', 1, false)")
    assert newest_left_behind(connection, {}, [], newer_than=None) == ({}, 0)
