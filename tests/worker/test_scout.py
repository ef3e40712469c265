"""Scout: what lies before the places of the claims is found beside them, and claims go back for it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from awa_django.storage.claim import ClaimRequest, Place, claim_behind
from awa_django.storage.vacuum import HOT, vacuum
from awa_django.worker import cursor as cursor_module
from awa_django.worker import scout as module
from awa_django.worker.cursor import LONGEST_REST, ClaimCursor
from awa_django.worker.scout import Scout
from tests.conftest import Connect
from tests.factories import insert_job, update_job
from tests.waiting import wait_until
from tests.worker.conftest import Sessions

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

OLD = "2020-01-01T00:00Z"
TOMORROW = datetime.now(UTC) + timedelta(days=1)


class Desk:
    """A cursor under a snapshot that keeps all dead entries, and its scout."""

    def __init__(self, make_session: Sessions, reader: psycopg.Connection[Any], writer: Any) -> None:
        self.reader, self.writer = reader, writer
        self.cursor = ClaimCursor()
        self.found = threading.Event()
        self.excluded: set[str] = set()
        self.session = make_session()
        self.scout = Scout(
            make_session(), self.cursor, excluded_kinds=lambda: self.excluded, on_found=self.found.set
        )

    def claim(self, total: int = 500, queues: tuple[str, ...] = ("default",)) -> list[int]:
        request = ClaimRequest(limits=dict.fromkeys(queues, total), total=total, worker="w/1")
        with self.session.use() as connection:
            return [job.id for job in self.cursor.claim(connection, request)]

    def run_many(self) -> None:
        """Until the walk over dead entries is long, and the place of a job is known."""
        self.reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.reader.execute("SELECT FROM awa.jobs_hot")
        more = 16
        while more:
            more -= self.cursor.leaves_out
            self.writer.execute("INSERT INTO awa.jobs_hot (kind) SELECT 'k' FROM generate_series(1, 500)")
            assert len(self.claim()) == 500
        self.scout.look()
        assert self.cursor.leaves_out
        assert not self.found.is_set()

    def run_many_by_a_clock_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A queue rests for a second of ``now`` at most."""
        self.now = 1000.0
        self.cursor._clock = lambda: self.now
        self.run_many()
        monkeypatch.setattr(cursor_module, "LONGEST_REST", 1.0)


@pytest.fixture
def desk(make_session: Sessions, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    # No claim searches as a whole but after the scout has said so.
    monkeypatch.setattr(cursor_module, "LONGEST_REST", 3600.0)
    monkeypatch.setattr(cursor_module, "REST", 1e9)
    monkeypatch.setattr(cursor_module, "SHORT_WALK", 5)
    monkeypatch.setattr(module, "SHORT_WALK", 5)
    # The scout always does.
    monkeypatch.setattr(module, "REST_OF_WHOLE", 0.0)
    desk = Desk(make_session, connect(autocommit=False), connect())
    yield desk
    desk.scout.stop()


def test_claims_go_back_for_what_the_scout_found(desk: Desk) -> None:
    desk.run_many()
    late, urgent = insert_job(run_at=OLD), insert_job(priority=-98)
    assert desk.claim() == []
    desk.scout.look()
    assert desk.found.is_set()
    assert desk.cursor.leaves_out  # the jobs were found soon, which does not make the walk short
    following = insert_job()
    assert desk.claim() == [urgent, late, following]
    desk.found.clear()
    desk.scout.look()
    assert not desk.found.is_set()
    insert_job(run_at=OLD)
    assert desk.claim() == []  # back once


def test_what_is_found_during_a_claim_is_left_to_the_next_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.run_many()
    following = insert_job()
    real = claim_behind
    late = []

    def claim(*args: Any) -> Any:
        claimed = real(*args)
        monkeypatch.setattr(cursor_module, "claim_behind", real)
        late.append(insert_job(run_at=OLD))
        desk.scout.look()
        return claimed

    monkeypatch.setattr(cursor_module, "claim_behind", claim)
    assert desk.claim() == [following]
    assert desk.claim() == late


def test_claims_go_back_for_all_that_was_found_meanwhile(desk: Desk) -> None:
    """Not for what was found last."""
    desk.run_many()
    [(place,)] = desk.cursor.left_out().values()
    far, near = insert_job(run_at=OLD), insert_job(run_at=place.run_at - timedelta(microseconds=1))
    for found in (
        Place(2, datetime(2020, 1, 1, tzinfo=UTC), 0),
        place._replace(job_id=0, run_at=place.run_at - timedelta(seconds=1)),
    ):
        desk.cursor.was_searched("default", [found], seconds=0.0, is_long=None)
    assert desk.claim() == [far, near]


@pytest.mark.parametrize("size", [20_000, 15_500], ids=["left to the run", "told"])
def test_claims_cut_by_the_size_of_arguments_go_on_in_what_was_found(desk: Desk, size: int) -> None:
    """It would be searched for again, after each portion."""
    desk.run_many()
    insert_job(run_at=OLD, args={"value": random.Random(1).randbytes(size).hex()})
    desk.writer.execute(
        "INSERT INTO awa.jobs_hot (kind, run_at, args) SELECT job.kind, job.run_at, job.args "
        "FROM awa.jobs_hot AS job, generate_series(1, 299) WHERE job.state = 'available'"
    )
    desk.scout.look()
    assert len(desk.claim(1000)) < 300
    assert len(desk.claim(1000)) > 0


def test_claims_go_back_and_never_on(desk: Desk) -> None:
    """A claim may have gone back farther since the scout began to search."""
    desk.run_many()
    desk.cursor.was_searched("default", [Place(2, TOMORROW, 0)], seconds=0.0, is_long=True)
    following = insert_job()
    assert desk.claim() == [following]


def test_claims_that_go_back_take_all_in_their_order(desk: Desk) -> None:
    desk.run_many()
    ids = [insert_job(run_at=OLD) for _ in range(5)]
    desk.scout.look()
    assert [desk.claim(total=2) for _ in range(3)] == [ids[:2], ids[2:4], ids[4:]]


def test_queue_that_a_claim_did_not_reach_is_still_gone_back_in(desk: Desk) -> None:
    desk.run_many()
    late, mail = insert_job(run_at=OLD), insert_job(queue="mail")
    desk.scout.look()
    assert desk.claim(1, ("mail", "default")) == [mail]
    assert desk.claim(1, ("mail", "default")) == [late]


def test_excluded_kinds_are_passed_over(desk: Desk) -> None:
    desk.run_many()
    insert_job(run_at=OLD, kind="left.out")
    desk.excluded.add("left.out")
    desk.scout.look()
    assert not desk.found.is_set()


def test_queue_whose_dead_entries_are_gone_is_claimed_from_as_a_whole(desk: Desk, connect: Connect) -> None:
    desk.run_many()
    desk.reader.rollback()
    vacuum(desk.writer, HOT)
    desk.scout.look()
    assert not desk.cursor.leaves_out
    late = insert_job(run_at=OLD)
    assert desk.claim() == [late]


def test_thread_runs_while_something_is_left_out(desk: Desk) -> None:
    desk.scout.go()
    assert "awa-scout" not in {thread.name for thread in threading.enumerate()}
    desk.run_many()
    insert_job(run_at=OLD)
    desk.scout.go()
    assert desk.found.wait(60)
    desk.scout.stop()
    assert "awa-scout" not in {thread.name for thread in threading.enumerate()}


def test_thread_ends_when_nothing_is_left_out(desk: Desk) -> None:
    desk.run_many()
    desk.cursor._is_quick("default")
    desk.scout._serve()
    assert desk.scout._session._connection is None


def test_claims_search_for_themselves_while_the_scout_cannot(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def left_behind(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("too many connections")

    desk.run_many()
    monkeypatch.setattr(module, "left_behind", left_behind)
    late = insert_job(run_at=OLD)
    assert desk.claim() == []
    desk.scout.go()
    wait_until(lambda: "search for themselves" in caplog.text)
    assert desk.claim() == [late]


def test_scout_that_does_not_come_back_is_not_waited_for_long(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.run_many_by_a_clock_of_its_own(monkeypatch)
    desk.cursor.was_searched("default", [], seconds=0.5, is_long=True)
    late = insert_job(run_at=OLD)
    desk.now += 1.0 + 3 * 0.5
    assert desk.claim() == []
    desk.now += cursor_module.LATE
    assert desk.claim() == [late]


def test_claims_measure_the_walk_where_the_scout_found_something_soon(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or nobody would see that it is short again, while something late comes all the time."""
    desk.run_many_by_a_clock_of_its_own(monkeypatch)
    desk.cursor.was_searched("default", [], seconds=0.0, is_long=True)
    desk.now += 0.9 + cursor_module.LATE
    desk.cursor.was_searched("default", [Place(2, TOMORROW, 0)], seconds=0.0, is_long=False)
    desk.now += 0.2
    late = insert_job(run_at=OLD)
    assert desk.claim() == [late]


def test_claims_do_not_search_for_themselves_while_the_scout_searches_parts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.run_many_by_a_clock_of_its_own(monkeypatch)
    desk.cursor.was_searched("default", [], seconds=0.5, is_long=True)
    insert_job(run_at=OLD)
    for _ in range(5):
        desk.now += 1.0 + 3 * 0.5
        desk.cursor.was_searched("default", [], seconds=0.5, is_long=None)
        assert desk.claim() == []
        assert desk.cursor.leaves_out


def test_what_is_near_or_new_is_searched_each_time_and_everything_when_that_has_rested(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    desk.scout._clock = lambda: now
    far, near = insert_job("running", run_at=OLD), insert_job("running")
    desk.run_many()
    monkeypatch.setattr(module, "REST_OF_WHOLE", 1e9)
    monkeypatch.setattr(module, "PART", 5)
    desk.scout._walks["default"].rests_until = now + 30.0
    for _ in range(3):
        desk.scout.look()  # near is now what the next claim passes, new what comes from now on
    [instant] = desk.writer.execute("SELECT now()").fetchone()
    passed = [insert_job() for _ in range(3)]
    assert desk.claim() == passed
    for job_id, run_at in ((far, OLD), (near, instant)):
        update_job(job_id, state="'available'", run_at=f"'{run_at}'", worker="NULL")
    desk.scout.look()
    assert desk.claim() == [near]
    new = insert_job(run_at=OLD)
    desk.scout.look()
    assert desk.claim() == [new]
    now += 29.9
    desk.scout.look()
    assert desk.claim() == []
    now += 0.2
    desk.scout.look()
    desk.cursor._back_at.clear()  # the way back to the new one was long
    assert desk.claim() == [far]


@pytest.mark.parametrize("total", [1, 500])
def test_place_is_where_nobody_has_been_and_not_behind_who_was_found_far_back(desk: Desk, total: int) -> None:
    """Each claim would walk from there, until the next job of this priority."""
    desk.run_many()
    before = desk.cursor.left_out()
    late = insert_job(run_at=OLD)
    desk.scout.look()
    assert desk.claim(total) == [late]
    assert desk.claim(total) == []
    assert desk.cursor.left_out() == before
    assert desk.cursor._places_of("default", is_back=True) == before["default"]


def test_priority_that_a_full_claim_did_not_get_to_is_still_gone_back_in(desk: Desk) -> None:
    desk.run_many()
    late, urgent = insert_job(run_at=OLD), [insert_job(priority=1) for _ in range(2)]
    insert_job()
    desk.scout.look()
    assert [desk.claim(total=1) for _ in range(3)] == [urgent[:1], urgent[1:], [late]]


def test_claims_do_not_go_back_in_vain_again_and_again(
    desk: Desk, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would walk from a locked job over all the dead entries behind it."""
    desk.run_many()
    late = insert_job(run_at=OLD)
    locker = connect(autocommit=False)
    locker.execute("SELECT FROM awa.jobs_hot WHERE state = 'available' FOR UPDATE")
    now = desk.cursor._clock()
    desk.cursor._clock = lambda: now
    monkeypatch.setattr(cursor_module, "rest_after", lambda seconds: 1.0)
    desk.scout.look()
    assert desk.claim() == []  # in vain
    locker.rollback()
    desk.scout.look()
    following = insert_job()
    assert desk.claim() == [following]
    assert desk.cursor.complete_in == pytest.approx(1.0)
    now += 1.001
    assert desk.claim() == [late]


def test_who_is_found_again_is_no_reason_to_hurry(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A locked job, one of a paused queue or of one whose slots are all taken: claims would spin."""
    desk.run_many()
    monkeypatch.setattr(cursor_module, "REST", 0.0)
    insert_job(run_at=OLD)
    assert desk.scout.look() == 0.0
    assert desk.scout.look() == LONGEST_REST
    assert desk.found.is_set()
    insert_job(priority=1)
    assert desk.scout.look() == 0.0


def test_stop_waits_for_no_search(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def left_behind(connection: psycopg.Connection[Any], *_: object, **__: object) -> None:
        pids.append(connection.info.backend_pid)
        connection.execute("SELECT pg_sleep(600)")

    pids: list[int] = []
    desk.run_many()
    monkeypatch.setattr(module, "left_behind", left_behind)
    monkeypatch.setattr(module, "STOP_PATIENCE", 60.0)
    asleep = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = ANY (%s)"
    desk.scout.go()
    wait_until(lambda: desk.writer.execute(asleep, [pids]).fetchall())
    desk.scout.stop()
    assert "awa-scout" not in {thread.name for thread in threading.enumerate()}


def test_stop_goes_on_without_a_search_that_does_not_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    searching, end = threading.Event(), threading.Event()

    def left_behind(*_: object, **__: object) -> None:
        searching.set()
        end.wait(60)
        raise psycopg.OperationalError("no answer")

    desk.run_many()
    monkeypatch.setattr(module, "left_behind", left_behind)
    monkeypatch.setattr(module, "STOP_PATIENCE", 0.01)
    desk.scout.go()
    assert searching.wait(60)
    desk.scout.stop()
    assert "awa-scout" in {thread.name for thread in threading.enumerate()}
    end.set()
    wait_until(lambda: "awa-scout" not in {thread.name for thread in threading.enumerate()})


def test_claims_go_on_where_no_thread_is_to_be_had(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the claim before has taken must not be lost."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    desk.run_many()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        desk.scout.go()
    insert_job(run_at=OLD)
    desk.scout.go()
    assert desk.found.wait(60)
