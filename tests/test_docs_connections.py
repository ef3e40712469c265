"""What docs/connections.md and docs/checks.md show and claim is run here, so that it stays true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection, connections, transaction

from awa_django import JobContext, Unique, conf, doctor, enqueue_many, job, operations, registry
from awa_django.models import HotJob, Job
from awa_django.testing import drain
from awa_django.worker import child, supervisor
from awa_django.worker.database import Session
from awa_django.worker.django_connections import tidy_own_thread
from awa_django.worker.options import make_options
from tests.conftest import PROJECT_DIR
from tests.test_docs import blocks

PAGE = "docs/connections.md"
TEXT = (PROJECT_DIR / PAGE).read_text(encoding="utf-8")
CODE = blocks(PAGE, "python")
SETTINGS = [block for block in CODE if block.startswith("DATABASES")]


@pytest.fixture
def declared(registered: None) -> dict[str, Any]:
    """The namespace in which blocks are run."""
    return {"__name__": "docs.connections"}


@pytest.fixture
def tenant(transactional_db: None, clean_queue: None) -> Iterator[str]:
    """A schema with a table of its own, and with look-alikes of ours."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA tenant_a")
        for name in ("jobs", "jobs_hot", "scheduled_jobs", "job_unique_claims", "waiters"):
            cursor.execute(f"CREATE TABLE tenant_a.{name} (id bigint)")
    yield "tenant_a"
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA tenant_a CASCADE")


def search_path() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW search_path")
        path: str = cursor.fetchone()[0]
        return path


def set_for_the_session(schema: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET search_path TO {schema}")


@pytest.mark.parametrize("block", SETTINGS, ids=["kept", "pool", "pgbouncer", "several"])
def test_the_settings_shown_are_accepted_and_draw_no_deploy_warning(
    settings: Any, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: dict[str, Any] = {}
    exec(block, shown)
    settings.AWA = shown.get("AWA", {})
    alias = conf.get_settings().database
    for name, database in shown["DATABASES"].items():
        monkeypatch.setitem(settings.DATABASES, name, database)
    settings.DATABASE_ROUTERS = shown.get("DATABASE_ROUTERS", [])
    assert "awa.W002" not in {message.id for message in run_checks()}
    ids = {message.id for message in run_checks(include_deployment_checks=True)}
    expected = {"awa.W020"} if alias == "queue" else set()  # that block shows other things
    assert ids & {"awa.W020", "awa.W021", "awa.W022"} == expected


def test_sessions_are_as_many_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def count(name: str, **options: Any) -> Session:
        made.append(name)
        return Session(name, **options)

    monkeypatch.setattr(supervisor, "Session", count)
    worker = supervisor.Supervisor(make_options(queues=None, known_queues=["default"]))
    for end in (worker._poke, worker._poked):
        end.close()
    of_process = len(child.session_names("awa")) - 1  # that of the scout is there under a long snapshot only
    assert f"| a worker's supervisor | {len(made)} |" in TEXT
    assert f"| each of its processes (`--processes`) | {of_process} |" in TEXT
    assert f"`{len(made)} + processes * ({of_process} + threads + 1)`" in TEXT


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_a_job_for_rows_of_another_database_waits_for_their_commit(declared: dict[str, Any]) -> None:
    @job(kind="docs.send_receipt")
    def send_receipt(order_id: int) -> None: ...

    class Order:
        pk = 7

        def save(self) -> None:
            assert not Job.objects.exists()

    (block,) = [block for block in CODE if "on_commit" in block]
    namespace = declared | {"send_receipt": send_receipt}
    exec(block, namespace)
    with transaction.atomic():
        namespace["place"](Order())
        assert not Job.objects.exists()
    assert Job.objects.get().args == {"order_id": 7}


def test_the_tenants_job_sets_the_path_for_its_transaction_only(
    tenant: str, declared: dict[str, Any]
) -> None:
    before = search_path()
    (block,) = [block for block in CODE if "def monthly_report" in block]
    seen: list[str] = []
    exec(block.replace("...  #", "look()  #"), declared | {"look": lambda: seen.append(search_path())})
    report = registry.get("docs.connections.monthly_report")
    registry.get(report.kind).function(tenant)
    assert seen == ["tenant_a, public"]
    assert search_path() == before


def test_queue_works_whatever_the_search_path_is(tenant: str, declared: dict[str, Any]) -> None:
    @job(kind="docs.tenant", atomic=True, takes_context=True, keep_result=True)
    def report(context: JobContext, number: int) -> int:
        context.progress(50)
        return number

    set_for_the_session(tenant)
    ids = [report.enqueue(number=1).id, report.using(delay=3600).enqueue(number=2).id]
    ids += [answer.id for answer in enqueue_many([report.item(number=3)])]
    keyed = report.using(unique=Unique(args=True))
    assert [keyed.enqueue(number=4).created for _ in range(2)] == [True, False]
    assert {run.outcome for run in drain()} == {"completed"}
    assert report.get(ids[2]).result == 3
    assert operations.cancel(ids[1]).changed == (ids[1],)
    assert (Job.objects.count(), HotJob.objects.filter(state="completed").count()) == (4, 3)
    assert [finding for finding in doctor.diagnose() if not finding.is_warning] == []
    assert search_path() == tenant


@pytest.mark.parametrize("max_age", [0, 60])
def test_what_a_handler_sets_for_its_session_lives_as_long_as_that(
    tenant: str, max_age: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", max_age)
    before = search_path()

    def two_jobs() -> str:
        try:
            set_for_the_session(tenant)
            tidy_own_thread()
            return search_path()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(two_jobs).result() == (tenant if max_age else before)


@pytest.mark.django_db(transaction=True)
def test_the_reset_of_a_pool_takes_the_path_back(declared: dict[str, Any], connect: Any) -> None:
    (block,) = [block for block in CODE if block.startswith("def reset")]
    exec(block, declared)
    session = connect(autocommit=False)
    before = session.execute("SHOW search_path").fetchone()
    session.execute("SET search_path TO tenant_a")
    session.commit()
    declared["reset"](session)
    assert session.execute("SHOW search_path").fetchone() == before


def test_every_check_is_documented_once_and_no_other() -> None:
    page = (PROJECT_DIR / "docs/checks.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(awa\.[EWI]\d{3})` \|", page, re.MULTILINE)
    sources = (PROJECT_DIR / "awa_django").rglob("*.py")
    known = {name for path in sources for name in re.findall(r'id="(awa\.[EWI]\d{3})"', path.read_text())}
    assert sorted(documented) == sorted(known)
