"""Claim: which jobs, in which order, under which lease and deadline, and what is left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction

from awa_django.storage.claim import (
    BEGINNING,
    ClaimRequest,
    Place,
    claim,
    claim_behind,
    claim_one,
    claimable,
    quarantine,
)
from awa_django.storage.rows import Attempt, ClaimedJob
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job

pytestmark = pytest.mark.django_db

BEYOND_FLOAT = "1" + "0" * 400


# Queues that each claim of a single queue asks as well.
others: dict[str, int] = {}


@pytest.fixture(autouse=True, params=[{}, {"empty": 10}], ids=["alone", "among others"])
def company(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One queue is claimed from by a statement of its own."""
    monkeypatch.setitem(globals(), "others", request.param)


def request(*queues: str, **options: Any) -> ClaimRequest:
    values: dict[str, Any] = {
        "limits": dict.fromkeys(queues or ("default",), 10),
        "total": 100,
        "worker": "w/1",
        **options,
    }
    if len(values["limits"]) == 1:
        values["limits"] |= others
    return ClaimRequest(**values)


def claimed_ids(*queues: str, **options: Any) -> list[int]:
    return [job.id for job in claim(connection, request(*queues, **options))]


def seconds(job_id: int, column: str) -> float | None:
    """How far the column lies from now(), which is the start of the test's transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT extract(epoch FROM {column} - now())::float8 FROM awa.jobs_hot WHERE id = %s", [job_id]
        )
        found = cursor.fetchone()[0]
        return None if found is None else float(found)


def pause(queue: str, until: str = "NULL", paused: str = "true") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO awa.queue_meta (queue, paused, paused_until) VALUES (%s, {paused}, {until})",
            [queue],
        )


def test_claim_gives_the_job_and_makes_the_row_running_under_a_new_lease() -> None:
    job_id = insert_job(
        attempt=2, run_lease=6, args={"n": 1}, metadata={"k": "v"}, progress={"percent": 5}, queue="q"
    )
    assert claim(connection, request("q")) == [
        ClaimedJob(job_id, 7, "tests.job", "q", 3, 25, '{"n": 1}', '{"k": "v"}', '{"percent": 5}')
    ]
    row = reload_job(job_id)
    assert (row.state, row.attempt, row.run_lease, row.worker) == ("running", 3, 7, "w/1")
    assert row.attempted_at == row.heartbeat_at is not None
    assert row.deadline_at is None


def test_claimed_job_names_its_run_and_leaves_empty_metadata_out() -> None:
    job_id = insert_job()
    [job] = claim(connection, request())
    assert job.key == Attempt(job_id, 1)
    assert (job.metadata, job.progress) == (None, None)


def test_claim_takes_best_priority_then_earliest_then_lowest_id() -> None:
    late = insert_job(run_at="2020-01-02T00:00Z")
    early = insert_job(run_at="2020-01-01T00:00Z")
    twin = insert_job(run_at="2020-01-01T00:00Z")
    urgent = insert_job(priority=-98)
    idle = insert_job(priority=102, run_at="2000-01-01T00:00Z")
    assert claimed_ids(limits={"default": 3}) == [urgent, early, twin]
    assert claimed_ids() == [late, idle]


def test_claim_keeps_to_the_limit_of_each_queue_and_to_the_total() -> None:
    jobs = {queue: [insert_job(queue=queue) for _ in range(4)] for queue in ("a", "b", "c")}
    first = claimed_ids(limits={"a": 1, "b": 3, "c": 4}, total=6)
    assert first == sorted([jobs["a"][0], *jobs["b"][:3], *jobs["c"][:2]])
    assert claimed_ids("a", total=2) == jobs["a"][1:3]
    assert claimed_ids(limits={}, total=5) == []
    assert claimed_ids("c", total=0) == []


def test_each_queue_gives_its_share_before_any_gives_more() -> None:
    jobs = {queue: [insert_job(queue=queue) for _ in range(12)] for queue in ("a", "b")}
    wanted = request("a", "b", total=20, limits={"a": 12, "b": 12})
    assert wanted.share == 10
    assert claimed_ids(limits=wanted.limits, total=20) == [*jobs["a"][:10], *jobs["b"][:10]]


@pytest.mark.parametrize("lively", ["a", "b"])
def test_busy_queue_gives_what_the_others_do_not_have(lively: str) -> None:
    idle = "b" if lively == "a" else "a"
    busy = [insert_job(queue=lively) for _ in range(30)]
    others = [insert_job(queue=idle) for _ in range(2)]
    limits = {"a": 25, "b": 25, "empty": 25}
    assert claimable(connection, request(limits=limits, total=24)) == (
        [*busy[:8], *others, *busy[8:22]] if lively == "a" else [*others, *busy[:22]]
    )
    assert claimed_ids(limits=limits, total=24) == [*busy[:22], *others]
    assert claimed_ids(limits={**limits, lively: 3}, total=24) == busy[22:25]
    assert claimed_ids(limits=limits, total=24) == busy[25:]


def test_small_claim_takes_from_few_of_many_queues() -> None:
    ids = [insert_job(queue=queue) for queue in "ab" for _ in range(9)]
    assert claimed_ids(limits=dict.fromkeys("abcdefgh", 10), total=10) == [*ids[:8], *ids[9:11]]


@pytest.mark.parametrize("pauses", [0, 1, 10, 300])
def test_queues_are_asked_in_the_order_given_however_the_pauses_are_joined(pauses: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.queue_meta (queue, paused) SELECT 'p' || n, true FROM generate_series(1, %s) n",
            [pauses],
        )
        cursor.execute("ANALYZE awa.queue_meta")  # with rows in it the planner hashes
    queues = [f"q{number * 7 % 20}" for number in range(20)]
    for queue in queues:
        for _ in range(10):
            insert_job(queue=queue)
    small = request(*queues, total=3)
    assert {job.queue for job in claim(connection, small)} == {queues[0]}
    small = request(*queues, limits=dict.fromkeys(queues, 1), total=3)
    assert {job.queue for job in claim(connection, small)} == {*queues[:3]}
    behind = claim_behind(connection, small, {queue: [BEGINNING] for queue in queues})
    assert {job.queue for job in behind.jobs} == {*queues[:3]}
    # What lies beyond the shares comes from the first that has more.
    for queue in ("busy", "busier"):
        for _ in range(30):
            insert_job(queue=queue)
    limits = dict.fromkeys(["idle", "busy", "busier"], 30)
    taken = [job.queue for job in claim(connection, request(limits=limits, total=30))]
    assert (taken.count("busy"), taken.count("busier")) == (20, 10)


def at(day: int, priority: int = 2, job_id: int = 0) -> Place:
    return Place(priority, datetime(2020, 1, day, tzinfo=UTC), job_id)


def test_claim_behind_a_place_takes_what_follows_in_its_priority_and_says_where_it_stood() -> None:
    ids = [insert_job(run_at=f"2020-01-0{day}T00:00Z") for day in (1, 2, 2, 3)]
    others = [insert_job(priority=priority, run_at="2020-01-09T00:00Z") for priority in (1, 3)]
    paused = insert_job(queue="still")
    pause("still")
    found = claim_behind(
        connection, request("default", "still"), {"default": [at(2, job_id=ids[1])], "still": [BEGINNING]}
    )
    assert [job.id for job in found.jobs] == ids[2:]
    assert found.places == [at(2, job_id=ids[2]), at(3, job_id=ids[3])]
    assert all(job.run_lease == 1 and reload_job(job.id).state == "running" for job in found.jobs)
    found = claim_behind(connection, request(), {"default": [BEGINNING], "empty": [BEGINNING]})
    assert [job.id for job in found.jobs] == [others[0], *ids[:2], others[1]]
    assert reload_job(paused).state == "available"


def test_claim_behind_several_places_keeps_to_the_limits_and_takes_the_best_first() -> None:
    def some(queue: str) -> list[int]:
        return [insert_job(queue=queue, priority=priority) for priority in (-98, 2, 102) for _ in range(2)]

    first, second = some("a"), some("b")
    places = {"a": [at(1, 102), at(1, -98), at(1, 2)], "b": [at(1, 102), at(1, -98)]}
    wanted = request(limits={"a": 3, "b": 4}, total=6)
    found = [job.id for job in claim_behind(connection, wanted, places).jobs]
    assert sorted(found) == sorted([*first[:3], *second[:2], second[4]])
    found = [job.id for job in claim_behind(connection, wanted, places).jobs]
    assert sorted(found) == sorted([*first[3:], second[5]])


@pytest.mark.parametrize("state", ["running", "completed", "failed", "cancelled", "waiting_external"])
def test_claim_takes_only_available_jobs(state: str) -> None:
    job_id = insert_job(state)
    assert claimed_ids() == []
    assert claim_one(connection, job_id, request()) is None
    assert reload_job(job_id).state == state


def test_claim_leaves_jobs_that_are_not_due() -> None:
    job_id = insert_job()
    update_job(job_id, run_at="now() + interval '1 millisecond'")
    assert claimed_ids() == []
    assert claim_one(connection, job_id, request()) is None


@pytest.mark.parametrize(
    ("until", "paused", "is_claimed"),
    [
        ("NULL", "true", False),
        ("NULL", "false", True),
        ("now() + interval '1 hour'", "true", False),
        ("'infinity'", "true", False),
        ("now() - interval '1 second'", "true", True),
        ("now() + interval '1 hour'", "false", True),
    ],
)
def test_claim_skips_a_paused_queue_until_its_pause_is_over(
    until: str, paused: str, is_claimed: bool
) -> None:
    pause("still", until, paused)
    job_id = insert_job(queue="still")
    other = insert_job(queue="busy")
    assert claimed_ids("still") == ([job_id] if is_claimed else [])
    assert claimed_ids("still", "busy") == [other]
    more, others = insert_job(queue="still"), insert_job(queue="busy")
    assert claimed_ids("still", "busy") == ([more, others] if is_claimed else [others])
    if not is_claimed:
        assert claim_one(connection, job_id, request()) is None


def test_claim_leaves_excluded_kinds_alone() -> None:
    left, taken = insert_job(kind="unknown"), insert_job(kind="known")
    assert claimable(connection, request(excluded_kinds=["unknown"])) == [taken]
    assert claimed_ids(excluded_kinds=["unknown", "other"]) == [taken]
    assert claimed_ids() == [left]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, 67.0),
        ({"awa:timeout": 10}, 17.0),
        ({"awa:timeout": 0.5}, 7.5),
        ({"awa:timeout": "10"}, 67.0),
        ({"awa:timeout": None}, 67.0),
        ({"awa:timeout": 0}, 67.0),
        ({"awa:timeout": -1}, 67.0),
    ],
)
def test_claim_sets_the_deadline_of_the_job_or_of_its_kind(
    own: dict[str, Any] | None, expected: float
) -> None:
    job_id = insert_job(kind="a.timed", metadata=own or {})
    assert claimed_ids(timeouts='{"a.timed": 60}', hold=7) == [job_id]
    assert seconds(job_id, "deadline_at") == pytest.approx(expected)


def test_claim_sets_no_deadline_without_a_timeout() -> None:
    job_id = insert_job(kind="a.free")
    assert claimed_ids(timeouts='{"a.timed": 60}', hold=7) == [job_id]
    assert seconds(job_id, "deadline_at") is None


@pytest.mark.parametrize("exotic", ["1e400", "-1e400", BEYOND_FLOAT, '"x"', "[1]", "true", "1e-400"])
def test_claim_survives_an_exotic_timeout(exotic: str) -> None:
    job_id, mate = insert_job(), insert_job()
    update_job(job_id, metadata=f"""'{{"awa:timeout": {exotic}}}'""")
    assert claimed_ids() == [job_id, mate]
    deadline = seconds(job_id, "deadline_at")
    assert deadline is None or 0 <= deadline <= timedelta(days=365).total_seconds()


def test_claim_takes_a_row_whose_attempts_are_used_up_one_above_them() -> None:
    used_up = insert_job(attempt=5, max_attempts=3)
    most = insert_job(attempt=1000, max_attempts=1000)
    jobs = claim(connection, request())
    assert [(job.id, job.attempt, job.max_attempts) for job in jobs] == [
        (used_up, 4, 3),
        (most, 1001, 1000),
    ]


def test_claim_one_claims_like_claim() -> None:
    job_id = insert_job(kind="a.timed", queue="q", metadata={"k": 1}, run_lease=3)
    job = claim_one(connection, job_id, request(timeouts='{"a.timed": 60}', hold=7))
    assert job == ClaimedJob(job_id, 4, "a.timed", "q", 1, 25, "{}", '{"k": 1}', None)
    assert seconds(job_id, "deadline_at") == pytest.approx(67)
    assert claim_one(connection, job_id, request()) is None


def test_claimable_names_what_claim_would_take_and_changes_nothing() -> None:
    ids = [insert_job(queue=queue) for queue in ("a", "a", "b", "b")]
    wanted = request(limits={"a": 1, "b": 5}, total=2)
    assert claimable(connection, wanted) == [ids[0], ids[2]]
    assert [job.id for job in claim(connection, wanted)] == [ids[0], ids[2]]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_claim_passes_over_jobs_that_another_transaction_holds(connect: Connect) -> None:
    first, second = insert_job(), insert_job()
    one, two = connect(autocommit=False), connect(options="-c lock_timeout=5s")
    assert [job.id for job in claim(one, request(limits={"default": 1}))] == [first]
    assert [job.id for job in claim(two, request())] == [second]
    assert claim_one(two, first, request()) is None
    one.rollback()
    assert [job.id for job in claim(two, request())] == [first]


def poison(**columns: Any) -> int:
    """A job whose mask has running but not available, while another one holds its key."""
    key = bytes(range(16))
    insert_job("running", unique_key=key, unique_states="00100000", queue="elsewhere")
    return insert_job(unique_key=key, **{"unique_states": "00100000", **columns})


@pytest.mark.fault("F53", injected="a row that the claim itself cannot write")
def test_claim_of_a_row_that_cannot_run_fails_and_claim_one_takes_the_others() -> None:
    bad, good = poison(), insert_job()
    with pytest.raises(IntegrityError), transaction.atomic():
        claim(connection, request())
    with pytest.raises(IntegrityError), transaction.atomic():
        claim_one(connection, bad, request())
    assert claim_one(connection, good, request()) is not None
    assert reload_job(bad).state == "available"


@pytest.mark.parametrize("mask", ["00100000", "00100010", "10111111"])
def test_quarantine_cancels_whatever_the_mask_says(mask: str) -> None:
    bad = poison(unique_states=mask)
    assert quarantine(connection, bad, '{"error": "no"}')
    row = reload_job(bad)
    assert (row.state, row.attempt, row.run_lease) == ("cancelled", 0, 0)
    [entry] = row.errors
    assert (entry["error"], entry["attempt"], "run_lease" in entry) == ("no", 0, False)
    assert entry["at"]
    # Only the bit of the state that it could not hold the key in is given up.
    assert row.unique_states == mask[:6] + "0" + mask[7:]
    assert not quarantine(connection, bad, "{}")


def test_quarantine_leaves_a_job_that_has_moved_on() -> None:
    job_id = insert_job("running")
    assert not quarantine(connection, job_id, "{}")
    assert reload_job(job_id).errors == []


def test_lease_that_cannot_grow_is_refused_alone() -> None:
    job_id, mate = insert_job(run_lease=2**63 - 1), insert_job()
    for attempt in (lambda: claim(connection, request()), lambda: claim_one(connection, job_id, request())):
        with pytest.raises(Exception, match="out of range") as raised, transaction.atomic():
            attempt()
        assert isinstance(raised.value.__cause__, psycopg.DataError)
    assert claim_one(connection, mate, request()) is not None
