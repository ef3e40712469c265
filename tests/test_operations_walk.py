"""One change on all jobs of a selection, and the job that does it: what it takes, resumes and leaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import ProgrammingError, connection
from django.utils import timezone

from awa_django import operations, registry
from awa_django.bulk_operation import bulk_operation
from awa_django.operations import Change, batches, matching
from awa_django.operations.change import BULK_KIND
from awa_django.operations.walk import Place, Selection, walk
from awa_django.storage import operate
from awa_django.storage.promote import promote
from awa_django.testing.running import run_available
from tests.factories import insert_job, reload_job, update_job

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many steps with few rows."""
    monkeypatch.setattr(batches, "BATCH", 3)
    monkeypatch.setattr(matching, "LOOK", 5)


def selection(**wanted: Any) -> Selection:
    return Selection(highest_id=operate.highest_id(connection), **wanted)


def run(change: Change, chosen: Selection, place: Place | None = None) -> Place:
    return walk(change, chosen, place or Place(), by="ann", keep=lambda _: None)


def states(*ids: int) -> list[str]:
    return [reload_job(job_id).state for job_id in ids]


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (Change(operation="retry"), "failed", "available"),
        (Change(operation="run_now"), "scheduled", "available"),
        (Change(operation="cancel"), "retryable", "cancelled"),
        (Change(operation="cancel"), "running", "cancelled"),
        (
            Change(operation="reschedule", run_at=timezone.now() + timedelta(days=9)),
            "available",
            "scheduled",
        ),
    ],
)
def test_each_operation_takes_all_that_match(change: Change, before: str, after: str) -> None:
    ids = [insert_job(before, queue="mail") for _ in range(12)]
    other, ended = insert_job(before), insert_job("completed", queue="mail")
    place = run(change, selection(queue="mail"))
    assert states(*ids) == [after] * 12
    assert states(other, ended) == [before, "completed"]
    assert (place.changed, place.left, place.first_left) == (12, 0, ())


def test_values_are_set_and_those_that_have_them_are_not_counted() -> None:
    ids = [insert_job(state) for state in ("available", "scheduled", "running") for _ in range(4)]
    already = insert_job(priority=4)
    assert run(Change(operation="set_priority", priority=4), selection()).changed == 12
    assert {reload_job(job_id).priority for job_id in [*ids, already]} == {4}
    assert run(Change(operation="move_queue", queue="other"), selection()).changed == 9
    assert run(Change(operation="delete"), selection(queue="other")).changed == 9
    assert [job_id for job_id in ids if reload_job(job_id)] == ids[8:]


def test_filters_of_the_lists() -> None:
    chosen = insert_job("failed", kind="a", errors=[{"outcome": "rescued"}], tags=["x", "y"])
    insert_job("failed", kind="a", errors=[{"outcome": "rescued"}, {"outcome": "failed"}], tags=["x"])
    insert_job("cancelled", kind="a", tags=["y"])
    change = Change(operation="delete")
    for wanted in ({"state": "failed", "ended": "rescued"}, {"tags": ("x", "y")}):
        match = selection(**wanted).match(change)
        found = operate.matching(connection, match, table="hot", after_id=0, row_count=100)
        assert found.job_ids == [chosen]
    assert run(change, selection(kind="a", state="failed", table="deferred")).changed == 0
    assert run(change, selection(kind="a", state="failed", table="hot")).changed == 2


@pytest.mark.parametrize(
    ("at", "is_of_this_end"),
    [("2020-01-01T00:00:00+00:00", False), ("nonsense", True), (7, True), (None, True)],
)
def test_an_entry_of_an_earlier_end_tells_nothing_of_this_one(at: object, is_of_this_end: bool) -> None:
    """Retried since, and cancelled while it waited: that leaves no entry."""
    entries = [{"outcome": "superseded", "at": at}]
    job_id = insert_job("cancelled", errors=entries)
    now = connection.cursor().execute("SELECT to_jsonb(now()) #>> '{}'").fetchone()[0]
    of_this = insert_job("cancelled", errors=[*entries, {"outcome": "superseded", "at": now}])
    chosen = selection(state="cancelled", ended="superseded")
    match = chosen.match(Change(operation="delete"))
    expected = [job_id, of_this] if is_of_this_end else [of_this]
    assert operate.matching(connection, match, table="hot", after_id=0, row_count=9).job_ids == expected
    assert operate.still_matching(connection, match, [job_id, of_this]) == expected


def test_a_state_that_the_operation_does_not_take_matches_nothing() -> None:
    insert_job("completed")
    chosen = selection(state="completed")
    assert chosen.states(Change(operation="cancel")) == []
    place = run(Change(operation="cancel"), chosen)
    assert (place.passes_done, place.changed, place.left) == (3, 0, 0)


def test_what_cannot_be_changed_is_counted_with_the_first_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("awa_django.operations.walk.LEFT_KEPT", 2)
    keyed = [
        insert_job(unique_key=number.to_bytes(16, "big"), unique_states="11101001") for number in range(4)
    ]
    free = insert_job()
    place = run(Change(operation="move_queue", queue="other"), selection(table="hot"))
    assert (place.changed, place.left) == (1, 4)
    assert [left.job_id for left in place.first_left] == keyed[:2]
    assert place.first_left[0].reason == "has a unique key, which may cover its queue"
    assert reload_job(free).queue == "other"


def test_what_is_left_is_counted_once_though_it_is_met_twice() -> None:
    keyed = [
        insert_job(state, unique_key=number.to_bytes(16, "big"), unique_states="11101001")
        for number, state in enumerate(("available", "available", "scheduled"))
    ]
    place = run(Change(operation="move_queue", queue="other"), selection())
    assert (place.changed, place.left) == (0, 3)
    assert sorted(left.job_id for left in place.first_left) == keyed


def test_a_job_that_is_put_off_to_an_instant_that_has_come_is_counted_once() -> None:
    """It is promoted meanwhile, and met again among the hot jobs."""
    deferred, available = [insert_job("scheduled") for _ in range(4)], insert_job()
    past = timezone.now() - timedelta(hours=1)

    def keep(place: Place) -> None:
        if place.changed == 4:
            promote(connection, batch=10)

    place = walk(Change(operation="reschedule", run_at=past), selection(), Place(), by=None, keep=keep)
    assert states(*deferred) == ["available"] * 4
    assert (place.changed, place.left, [left.job_id for left in place.first_left]) == (4, 1, [available])


def test_what_is_promoted_behind_a_look_is_found_and_what_came_later_is_left() -> None:
    moving = insert_job("scheduled")
    hot = insert_job()
    chosen = selection()
    later: list[int] = []

    def keep(place: Place) -> None:
        if not later:
            operate.run_now(connection, [moving])
            later.append(insert_job())

    walk(Change(operation="cancel"), chosen, Place(), by=None, keep=keep)
    assert states(moving, hot, later[0]) == ["cancelled", "cancelled", "available"]


def test_what_somebody_else_changes_behind_a_look_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retried job must not be deleted by who chose the failed ones, though available ones can be."""
    kept, retried, deleted, moved = [insert_job("failed", queue="mail") for _ in range(4)]
    find = operate.matching

    def found_and_overtaken(*args: Any, **kwargs: Any) -> operate.Look:
        look = find(*args, **kwargs)
        update_job(retried, state="'available'", finalized_at="NULL")
        update_job(moved, queue="'other'")
        operate.delete_hot(connection, [deleted])
        return look

    monkeypatch.setattr(operate, "matching", found_and_overtaken)
    place = run(Change(operation="delete"), selection(state="failed", queue="mail"))
    assert reload_job(kept) is None
    assert states(retried, moved) == ["available", "failed"]
    assert (place.changed, place.left) == (1, 3)
    assert [(left.job_id, left.reason) for left in place.first_left] == [
        (retried, "matches no more"),
        (deleted, "does not exist"),
        (moved, "matches no more"),
    ]


class Died(Exception):
    pass


def test_a_walk_that_died_goes_on_and_changes_nothing_twice() -> None:
    """A job that was retried, ran and failed again meanwhile is not retried a second time."""
    ids = [insert_job("failed") for _ in range(20)]
    change, chosen = Change(operation="retry"), selection(state="failed")
    kept: list[Place] = []

    def keep(place: Place) -> None:
        if len(kept) == 2:
            raise Died
        kept.append(place)

    with pytest.raises(Died):
        walk(change, chosen, Place(), by=None, keep=keep)
    done = [job_id for job_id in ids if reload_job(job_id).state == "available"]
    assert len(done) == kept[-1].changed == 5  # the batch whose place was not kept is undone
    update_job(done[0], state="'failed'", finalized_at="now()")
    place = run(change, chosen, kept[-1])
    assert place.changed == 20
    assert states(*ids) == ["failed", *["available"] * 19]


def enqueue(
    change: Change, chosen: Selection, *, user_id: str | None = None, confirmation: str = "sent"
) -> int:
    made = bulk_operation.enqueue(change, chosen, "ann", user_id, confirmation)
    return made.id if made.created else made.holder_id or 0


def perform(job_id: int) -> str:
    registry.register(bulk_operation.handler)  # other tests forget all kinds
    run = run_available(job_id)
    assert run is not None
    return run.outcome


def test_the_job_says_what_came_of_it_and_logs_its_end() -> None:
    user = staff("cancel_job")
    ids = [insert_job(queue="mail", kind="k") for _ in range(7)]
    older = enqueue(Change(operation="retry"), selection(), confirmation="other")
    job_id = enqueue(Change(operation="cancel"), selection(), user_id=str(user.pk), confirmation="first")
    assert enqueue(Change(operation="cancel"), selection(), confirmation="first") == job_id
    assert perform(job_id) == "completed"
    job = reload_job(job_id)
    assert job.result == {"operation": "cancel", "changed": 7, "left": 0, "first_left": []}
    assert job.priority == 1
    assert states(*ids) == ["cancelled"] * 7
    assert states(older) == ["available"]  # a job of this kind is left by the others
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id) == (user, str(job_id))
    assert entry.change_message == "Ended, cancel: 7 changed, 0 left."


def staff(*permissions: str) -> User:
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def error_of(job_id: int) -> str:
    return str(reload_job(job_id).errors[-1]["error"])


@pytest.mark.fault(
    "F82", injected="an operation on all that match, whose user loses the right before it runs"
)
def test_a_run_asks_for_the_rights_of_its_user_again() -> None:
    """They may have been taken since, or since it was cancelled and somebody else resumed it."""
    user = staff("cancel_job")
    other = insert_job()
    job_id = enqueue(Change(operation="cancel"), selection(), user_id=str(user.pk))
    user.user_permissions.clear()
    assert perform(job_id) == "failed"
    text = "ann has no awa.cancel_job any more: nothing more is done"
    assert text in error_of(job_id)
    assert states(other) == ["available"]
    entry = LogEntry.objects.get()
    assert (entry.user, entry.change_message) == (user, f"Refused, cancel: {text}.")

    user.user_permissions.set(Permission.objects.filter(codename="cancel_job"))
    User.objects.update(is_active=False)
    operations.retry(job_id)
    assert perform(job_id) == "failed"
    assert "ann is not active any more" in error_of(job_id)
    User.objects.update(is_active=True)
    operations.retry(job_id)
    assert perform(job_id) == "completed"
    assert states(other) == ["cancelled"]


@pytest.mark.parametrize("user_id", ["4711", "nobody", "9" * 50])
def test_nothing_is_done_for_a_user_who_is_gone(user_id: str) -> None:
    other = insert_job()
    job_id = enqueue(Change(operation="cancel"), selection(), user_id=user_id)
    assert perform(job_id) == "failed"
    assert "ann does not exist any more" in error_of(job_id)
    assert states(other) == ["available"]
    assert not LogEntry.objects.exists()


def test_nothing_is_done_where_rights_cannot_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role of the worker's own may be kept from reading users."""
    user = staff("cancel_job")
    job_id = enqueue(Change(operation="cancel"), selection(), user_id=str(user.pk))

    def refuse(*_: object) -> bool:
        raise ProgrammingError("permission denied for table auth_permission")

    monkeypatch.setattr(User, "has_perm", refuse)
    assert perform(job_id) == "failed"
    assert "permission denied for table auth_permission" in error_of(job_id)


def test_its_end_is_logged_once_where_the_worker_dies_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    user = staff("cancel_job")
    job_id = enqueue(Change(operation="cancel"), selection(), user_id=str(user.pk))

    def die(_: Place) -> dict[str, object]:
        raise ConnectionError("the database went away")

    with monkeypatch.context() as patch:
        create = LogEntry.objects.create
        patch.setattr(
            LogEntry.objects,
            "create",
            lambda **values: (create(**values), patch.setattr(Place, "as_json", die)),
        )
        assert perform(job_id) == "retried"
    operations.run_now(job_id)
    assert perform(job_id) == "completed"
    assert reload_job(job_id).result["operation"] == "cancel"
    assert LogEntry.objects.count() == 1


def test_bulk_operations_are_not_retried_by_one() -> None:
    stopped = enqueue(Change(operation="delete"), selection())
    operations.cancel(stopped)
    chosen = selection(kind=BULK_KIND)
    assert run(Change(operation="retry"), chosen).changed == 0
    assert run(Change(operation="delete"), chosen).changed == 1


def test_the_job_ends_where_the_log_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role of the worker's own may have no right to it."""
    user = staff("cancel_job")
    job_id = enqueue(Change(operation="cancel"), selection(), user_id=str(user.pk))

    def refuse(**_: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM no_such_table")

    monkeypatch.setattr(LogEntry.objects, "create", refuse)
    assert perform(job_id) == "completed"


def test_the_next_attempt_goes_on_from_the_place_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [insert_job("failed") for _ in range(20)]
    job_id = enqueue(Change(operation="retry"), selection(state="failed"))
    apply, calls = Change.apply, []

    def die(self: Change, some: Any, **options: Any) -> Any:
        calls.append(list(some))
        if len(calls) == 3:
            raise ConnectionError("the database went away")
        return apply(self, some, **options)

    monkeypatch.setattr(Change, "apply", die)
    assert perform(job_id) == "retried"
    job = reload_job(job_id)
    assert job.progress["checkpoint"]["changed"] == 5
    assert job.progress["message"] == "5 changed, 0 left"
    assert 0 < job.progress["percent"] < 100
    update_job(ids[0], state="'failed'", finalized_at="now()")
    operations.run_now(job_id)
    assert perform(job_id) == "completed"
    assert reload_job(job_id).result["changed"] == 20
    assert states(ids[0]) == ["failed"]
    assert [number for some in calls[3:] for number in some] == ids[5:]


def test_a_batch_whose_place_cannot_be_kept_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is when the lease was lost: the row is no longer this run's."""
    ids = [insert_job() for _ in range(9)]
    job_id = enqueue(Change(operation="cancel"), selection())
    answers = [{job_id}]
    monkeypatch.setattr("awa_django.bulk_operation.progress", lambda *_: answers.pop() if answers else set())
    assert perform(job_id) == "retried"
    assert states(*ids) == [*["cancelled"] * 3, *["available"] * 6]


def test_the_share_grows_to_one() -> None:
    chosen = replace(selection(), highest_id=200)
    assert Place().share(chosen, 2) == 0
    assert Place(first_id=100, last_id=150).share(chosen, 2) == 0.25
    assert Place(passes_done=1, first_id=100, last_id=150).share(chosen, 2) == 0.75
    assert Place(passes_done=2).share(chosen, 2) == 1


def test_the_kind_is_its_own() -> None:
    assert bulk_operation.handler.kind == BULK_KIND
