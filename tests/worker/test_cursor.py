"""ClaimCursor: slow claims begin where the last one ended; what lies before is found within a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from awa_django.storage.claim import BEGINNING, Claimed, ClaimRequest, claim_and_measure, claim_behind
from awa_django.worker import cursor as module
from awa_django.worker.cursor import ClaimCursor
from tests.conftest import Connect
from tests.factories import insert_job
from tests.worker.conftest import Sessions

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

OLD, RECENT = "2020-01-01T00:00Z", "2020-01-02T00:00Z"


class Desk:
    """A cursor with a clock of its own, whose claims read as many pages and take as long as a test says."""

    def __init__(self, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.page_count, self.seconds = 3, 0.005
        self.cursor = ClaimCursor(clock=lambda: self.now)
        self.asked: list[str] = []
        self._session = session
        for name in ("claim_and_measure", "claim_behind"):
            monkeypatch.setattr(module, name, self._long(getattr(module, name)))

    def _long(self, real: Callable[..., Claimed]) -> Callable[..., Claimed]:
        def claim(connection: Any, request: ClaimRequest, *places: Any) -> Claimed:
            is_partial = places and any(BEGINNING not in each for each in places[0].values())
            self.asked.append("behind" if is_partial else "whole")
            self.now += 0.005 if is_partial else self.seconds
            claimed = real(connection, request, *places)
            assert claimed.page_count <= 6 * len(request.limits)
            return replace(claimed, page_count=4 if is_partial or not claimed.jobs else self.page_count)

        return claim

    def claim(self, *queues: str, total: int = 100) -> list[int]:
        limits = dict.fromkeys(queues or ("default",), 100)
        with self._session.use() as connection:
            request = ClaimRequest(limits=limits, total=total, worker="w/1")
            return [job.id for job in self.cursor.claim(connection, request)]

    def make_slow(self) -> None:
        """One long walk finds out, the second learns the place."""
        self.page_count, self.seconds = 700, 0.2
        for _ in range(2):
            job_id = insert_job(run_at=RECENT)
            assert self.claim() == [job_id]
        self.asked.clear()


@pytest.fixture
def desk(make_session: Sessions, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(make_session(), monkeypatch)


def test_quick_claims_search_whole_queues(desk: Desk) -> None:
    for run_at in (RECENT, OLD):
        job_id = insert_job(run_at=run_at)
        assert desk.claim() == [job_id]
        assert desk.cursor.complete_in is None
    assert desk.asked == ["whole", "whole"]


def test_slow_claims_go_on_behind_the_last_job_and_find_the_others_within_a_second(desk: Desk) -> None:
    desk.make_slow()
    late, urgent, following = insert_job(run_at=OLD), insert_job(priority=-98), insert_job(run_at=RECENT)
    assert desk.claim() == [following]
    left = desk.cursor.complete_in
    assert left is not None
    assert 0.9 < left <= 1.0
    desk.now += left
    assert desk.claim() == [urgent, late]
    assert desk.cursor.complete_in is None
    assert desk.asked == ["behind", "whole"]


def test_short_walk_is_made_again_the_sooner(desk: Desk) -> None:
    desk.make_slow()
    desk.now += 1.0
    insert_job(run_at=RECENT)
    desk.seconds = 0.008
    desk.claim()
    desk.claim()
    left = desk.cursor.complete_in
    assert left is not None
    assert 0.1 < left < 0.2


def test_each_known_priority_is_gone_on_with(desk: Desk) -> None:
    desk.make_slow()
    desk.now += 1.0
    insert_job(priority=1, run_at=RECENT)
    desk.claim()
    ids = [insert_job(priority=priority, run_at=RECENT) for priority in (1, 2)]
    assert desk.claim() == ids
    assert desk.asked == ["whole", "behind"]


def test_many_jobs_before_the_place_are_not_taken_once_a_second(desk: Desk) -> None:
    desk.make_slow()
    ids = [insert_job(run_at=OLD) for _ in range(5)]
    desk.now += 1.0
    assert desk.claim(total=2) == ids[:2]
    assert desk.claim() == ids[2:]
    assert desk.asked == ["whole", "behind"]


def test_queue_is_searched_as_a_whole_again_when_that_is_quick(desk: Desk) -> None:
    desk.make_slow()
    desk.now += 1.0
    desk.page_count = 20
    insert_job(run_at=RECENT)
    desk.claim()
    job_id = insert_job(run_at=OLD)
    assert desk.claim() == [job_id]
    assert desk.asked == ["whole", "whole"]


def test_queue_without_a_place_is_searched_as_a_whole(desk: Desk) -> None:
    desk.make_slow()
    mail, before, behind = (
        insert_job(queue="mail", run_at=OLD),
        insert_job(run_at=OLD),
        insert_job(run_at=RECENT),
    )
    assert sorted(desk.claim("default", "mail")) == [mail, behind]
    desk.now += 1.0
    assert desk.claim("default", "mail") == [before]


def test_queue_that_a_search_did_not_reach_is_still_to_be_searched(desk: Desk) -> None:
    desk.make_slow()
    desk.claim("mail", "default")
    desk.now += 1.0
    ids = [insert_job(queue="mail", run_at=OLD), insert_job(run_at=OLD)]
    assert desk.claim("mail", "default", total=1) == ids[:1]
    assert desk.claim("mail", "default", total=1) == ids[1:]


def test_search_that_finds_nothing_changes_nothing(desk: Desk) -> None:
    assert desk.claim() == []
    desk.make_slow()
    desk.now += 1.0
    assert desk.claim() == []
    insert_job(run_at=OLD)
    assert desk.claim() == []
    desk.now += 1.0
    assert len(desk.claim()) == 1
    assert desk.asked == ["whole", "behind", "whole"]


def test_pages_are_counted_while_a_snapshot_keeps_dead_entries(
    make_session: Sessions, connect: Connect
) -> None:
    reader = connect(autocommit=False)
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT FROM awa.jobs_hot")
    writer = connect()
    request = ClaimRequest(limits={"default": 500}, total=500, worker="w/1")
    cursor = ClaimCursor()
    counts = []
    with make_session().use() as connection:
        for _ in range(45):
            writer.execute("INSERT INTO awa.jobs_hot (kind) SELECT 'k' FROM generate_series(1, 500)")
            assert len(cursor.claim(connection, request)) == 500
            counts.append("default" in cursor._whole_at)
        writer.execute("INSERT INTO awa.jobs_hot (kind) VALUES ('k')")
        claimed = claim_behind(connection, request, {"default": [*cursor._places["default"].values()]})
        assert (len(claimed.jobs), claimed.page_count <= 6) == (1, True)
        writer.execute("INSERT INTO awa.jobs_hot (kind) VALUES ('k')")
        assert claim_and_measure(connection, request).page_count > module.SHORT_WALK
    assert (counts[0], counts[-1]) == (False, True)
