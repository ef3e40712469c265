"""What may be read and written through the models, on the database itself."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core import serializers
from django.core.exceptions import FieldError
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, NotSupportedError, connection
from django.test import override_settings
from django.utils import timezone

from awa_django.models import (
    CronJob,
    DeferredJob,
    HotJob,
    Job,
    LeaderLease,
    QueueMeta,
    QueueStats,
    UniqueClaim,
)
from awa_django.models.fields import UndecodedJSON
from awa_django.router import AwaRouter

pytestmark = pytest.mark.django_db

KEY = bytes(range(16))


def later(**by: float) -> Any:
    return timezone.now() + timedelta(**(by or {"days": 1}))


def test_models_name_every_column_of_their_relation_in_order() -> None:
    for model in apps.get_app_config("awa").get_models():
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {model._meta.db_table} LIMIT 0")
            columns = [column.name for column in cursor.description]
        assert columns == [field.column for field in model._meta.concrete_fields], model


def test_migrations_match_the_models() -> None:
    output = StringIO()
    call_command("makemigrations", "awa", check=True, dry_run=True, stdout=output)
    assert "No changes" in output.getvalue()


def test_create_leaves_the_rest_to_the_database_and_reads_it_back() -> None:
    job = Job.objects.create(kind="a.now", args={"n": 2**70})
    assert (job.state, job.queue, job.priority, job.max_attempts) == ("available", "default", 2, 25)
    assert (job.tags, job.errors, job.result) == ([], [], None)
    assert HotJob.objects.get(pk=job.pk).args == {"n": 2**70}


def test_create_routes_by_run_at() -> None:
    job = Job.objects.create(
        kind="a.later", run_at=later(), tags=["x", "y"], unique_key=KEY, unique_states="11111000"
    )
    assert job.state == "scheduled"
    deferred = DeferredJob.objects.get(pk=job.pk)
    assert (deferred.tags, deferred.unique_key, deferred.unique_states) == (["x", "y"], KEY, "11111000")
    assert not HotJob.objects.exists()
    assert UniqueClaim.objects.get(unique_key=KEY.hex()).job_id == job.pk


def test_bulk_create_reads_back_too() -> None:
    jobs = Job.objects.bulk_create([Job(kind="a"), Job(kind="b", run_at=later(), errors=[{"error": "x"}])])
    assert [job.state for job in jobs] == ["available", "scheduled"]
    assert Job.objects.get(pk=jobs[1].pk).errors == [{"error": "x"}]


@pytest.mark.parametrize(
    "options", [{"ignore_conflicts": True}, {"update_conflicts": True, "update_fields": ["queue"]}]
)
def test_bulk_create_refuses_conflict_options(options: dict[str, Any]) -> None:
    with pytest.raises(NotSupportedError, match="ON CONFLICT"):
        Job.objects.bulk_create([Job(kind="a")], **options)


def test_a_job_takes_no_id_of_its_own() -> None:
    for create in (
        lambda: Job.objects.create(id=7, kind="a"),
        lambda: Job(id=7, kind="a").save(),
        lambda: Job.objects.bulk_create([Job(id=7, kind="a")]),
    ):
        with pytest.raises(NotSupportedError, match="sequence"):
            create()


def test_save_of_an_existing_job_needs_update_fields() -> None:
    job = Job.objects.create(kind="a")
    with pytest.raises(NotSupportedError, match="update_fields"):
        job.save()
    job.priority = 4
    job.queue = "not sent"
    job.save(update_fields=["priority"])
    job.refresh_from_db()
    assert (job.priority, job.queue) == (4, "default")
    with pytest.raises(NotSupportedError, match="as a whole"):
        Job(kind="b").save(update_fields=["kind"])


def test_save_of_a_job_that_is_gone_is_reported() -> None:
    job = Job.objects.create(kind="a")
    Job.objects.filter(pk=job.pk).delete()
    with pytest.raises(DatabaseError):
        job.save(update_fields=["priority"])


def test_update_through_the_view_moves_between_the_tables() -> None:
    job = Job.objects.create(kind="a")
    assert Job.objects.filter(pk=job.pk).update(state="available", run_at=later()) == 1
    assert DeferredJob.objects.get(pk=job.pk).state == "scheduled"
    job.refresh_from_db()
    assert job.delete() == (1, {"awa.Job": 1})
    assert not Job.objects.exists()


def test_get_or_create_works_on_the_view() -> None:
    first, created = Job.objects.get_or_create(kind="a")
    again, created_again = Job.objects.get_or_create(kind="a")
    assert (created, created_again, first.pk) == (True, False, again.pk)


@pytest.mark.fault("F68", injected="select_for_update() on the view's model")
def test_locks_through_the_view_are_refused_naming_the_tables() -> None:
    for queryset in (Job.objects.all(), Job._base_manager.all(), Job._default_manager.using("default")):
        with pytest.raises(NotSupportedError, match=r"HotJob.*DeferredJob"):
            queryset.select_for_update()
    with pytest.raises(NotSupportedError, match="update_or_create"):
        Job.objects.update_or_create(kind="a", priority=1)
    with pytest.raises(NotSupportedError, match="select_for_update"):
        Job(pk=1).refresh_from_db(from_queryset=Job._base_manager.select_for_update())


def test_locks_on_the_tables_work() -> None:
    job = Job.objects.create(kind="a")
    assert HotJob.objects.select_for_update(skip_locked=True).get(pk=job.pk).pk == job.pk
    assert HotJob.objects.select_for_update(of=("self",), no_key=True).get(pk=job.pk).pk == job.pk
    assert not DeferredJob.objects.select_for_update(nowait=True).exists()
    with pytest.raises(FieldError, match="of"):
        HotJob.objects.select_for_update(of=("self", "queue")).first()


@pytest.mark.parametrize("model", [HotJob, DeferredJob, UniqueClaim, QueueMeta, CronJob, LeaderLease])
def test_writes_on_the_tables_are_refused(model: Any) -> None:
    queue = Job.objects.create(kind="a")
    for write in (
        model.objects.create,
        lambda: model.objects.bulk_create([model()]),
        lambda: model.objects.bulk_update([model()], []),
        lambda: model.objects.get_or_create(pk=queue.pk),
        lambda: model.objects.update_or_create(pk=queue.pk),
        model.objects.update,
        model._base_manager.update,
        model.objects.all().delete,
        model().save,
        model().delete,
    ):
        with pytest.raises(NotSupportedError, match=r"refused: .+"):
            write()
    assert not hasattr(model.objects, "delete")


def test_refusal_on_a_jobs_table_names_the_operations() -> None:
    with pytest.raises(NotSupportedError, match=r"awa_django\.operations \(cancel, retry"):
        HotJob.objects.update(priority=1)
    with pytest.raises(NotSupportedError, match="run_now"):
        DeferredJob.objects.update(priority=1)


def test_a_row_that_python_cannot_decode_breaks_no_list() -> None:
    deep, long_number = "[" * 20000 + "]" * 20000, "9" * 5000
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL max_stack_depth = '6MB'")
        cursor.execute(
            "INSERT INTO awa.jobs_hot (kind, args, metadata, errors) "
            "VALUES ('bad', jsonb_build_object('n', %s::numeric), "
            "jsonb_build_object('d', (%s)::jsonb), ARRAY[to_jsonb(%s::numeric)]), ('good', '{}', '{}', '{}')",
            [long_number, deep[18000:-18000], long_number],
        )
    bad, good = HotJob.objects.order_by("id")
    assert isinstance(bad.args, UndecodedJSON)
    assert long_number in bad.args
    assert isinstance(bad.errors[0], UndecodedJSON)
    assert good.args == {}


def test_lookups_on_the_columns_of_our_own_types() -> None:
    Job.objects.create(
        kind="a", tags=["x", "y"], args={"order": {"id": 5}}, unique_key=KEY, unique_states="10000000"
    )
    Job.objects.create(kind="b")
    assert Job.objects.filter(tags__contains=["y"]).count() == 1
    assert Job.objects.filter(args__order__id=5).count() == 1
    assert Job.objects.filter(unique_key=KEY).count() == 1
    assert Job.objects.filter(state__in=["available", "running"]).count() == 2
    with pytest.raises(TypeError, match="list of strings"):
        Job.objects.filter(tags="x").count()


def test_arrays_are_json_for_serializers_and_come_back_from_it() -> None:
    job = Job.objects.create(kind="a", tags=['x"', "y"], errors=[{"error": "it's"}])
    [row] = json.loads(serializers.serialize("json", [job]))
    assert row["fields"]["tags"] == '["x\\"", "y"]'
    assert row["fields"]["errors"] == '[{"error": "it\'s"}]'
    [loaded] = serializers.deserialize("json", json.dumps([row]))
    same: Any = loaded.object
    assert (same.tags, same.errors) == (job.tags, job.errors)


def test_rows_of_a_fixture_are_refused_naming_what_leaves_them_out(tmp_path: Path) -> None:
    keys: dict[Any, Any] = {QueueStats: ["2026-01-01T00:00:00Z", "q", "k"], UniqueClaim: KEY.hex()}
    fixture = tmp_path / "queue.json"
    for model in apps.get_app_config("awa").get_models():
        row = {"model": model._meta.label_lower, "pk": keys.get(model, "1"), "fields": {}}
        fixture.write_text(json.dumps([row]))
        with pytest.raises(NotSupportedError, match=rf"{model._meta.label} .*loaddata --exclude awa"):
            call_command("loaddata", fixture)
        call_command("loaddata", fixture, exclude=["awa"], verbosity=0)


def test_errors_of_the_view_arrive_as_integrity_errors() -> None:
    job = Job.objects.create(kind="a")
    with pytest.raises(IntegrityError, match="cannot change kind"):
        Job.objects.filter(pk=job.pk).update(kind="b")


@override_settings(AWA={"DATABASE": "queue"})
def test_router_and_managers_use_the_configured_alias() -> None:
    router = AwaRouter()
    assert (router.db_for_read(Job), router.db_for_write(HotJob)) == ("queue", "queue")
    user = apps.get_model("auth", "User")
    assert not router.db_for_read(user)
    assert not router.db_for_write(user)
    assert router.allow_migrate("queue", "auth") is None  # no opinion
    assert (
        router.allow_migrate("queue", "awa"),
        router.allow_migrate("default", "awa", model_name="job"),
    ) == (True, False)
    assert Job.objects.all().db == HotJob._base_manager.all().db == "queue"
    assert Job.objects.using("default").db == "default"
