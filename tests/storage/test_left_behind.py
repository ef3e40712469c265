"""What is before the places of the claims: the first job of each priority that somebody may claim."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from awa_django.storage.claim import BEGINNING, LOWEST_PRIORITY, Place, left_behind
from tests.conftest import Connect
from tests.factories import insert_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

EARLY, HERE, LATER = "2020-01-01T00:00Z", "2020-01-02T00:00Z", "2020-01-03T00:00Z"
AT = datetime(2020, 1, 2, tzinfo=UTC)


def place(priority: int = 2, job_id: int = 10**15) -> Place:
    return Place(priority, AT, job_id)


def found(connect: Connect, *places: Place, excluded_kinds: tuple[str, ...] = ()) -> list[Place]:
    places, page_count = left_behind(connect(), "default", places or (place(),), excluded_kinds)  # type: ignore[assignment]
    assert 0 < page_count < 20
    return sorted(places)


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
