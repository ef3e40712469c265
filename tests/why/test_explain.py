"""What holds for all answers to why a job has not run."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from awa_django.why import explain
from tests.factories import insert_job, update_job
from tests.why.asked import PAST, behind, codes, only, run_sql

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("job_id", [0, -1, 2**62, 2**63, 10**30])
def test_a_job_that_is_not_there(job_id: int) -> None:
    reason = only(job_id)
    assert (reason.code, reason.text) == ("not_found", f"There is no job {job_id}.")


def test_what_is_no_id_is_refused() -> None:
    with pytest.raises(TypeError):
        explain("17")  # type: ignore[arg-type]


@pytest.mark.django_db(transaction=True)
def test_it_reads_only(clean_queue: None, served: None) -> None:
    """As on a standby, which refuses every write."""
    behind(2)
    jobs = [insert_job(), insert_job("scheduled"), insert_job("running"), insert_job("failed")]
    due = insert_job("retryable")
    update_job(due, run_at=PAST)
    expected = [codes(job_id) for job_id in (*jobs, due, 2**40)]
    run_sql("SET default_transaction_read_only = on")
    try:
        assert [codes(job_id) for job_id in (*jobs, due, 2**40)] == expected
    finally:
        run_sql("RESET default_transaction_read_only")


def test_it_asks_twice_at_most_however_many_rows(served: None) -> None:
    available, due = insert_job(), insert_job("scheduled")
    update_job(due, run_at="now() - interval '1 second'")

    def statements() -> list[int]:
        counts = []
        for job_id in (available, due, 2**40):
            with CaptureQueriesContext(
                connection,
            ) as queries:
                explain(job_id)
            counts.append(len(queries))
        return counts

    assert statements() == [2, 2, 1]
    behind(500)
    run_sql(
        "INSERT INTO awa.scheduled_jobs (kind, run_at, state) "
        "SELECT 'tests.job', now() - interval '1 h', 'scheduled' FROM generate_series(1, 500)"
    )
    assert statements() == [2, 2, 1]


def test_instants_are_told_in_the_time_zone_of_the_project(served: None) -> None:
    job_id = insert_job("scheduled")
    update_job(job_id, run_at="'2999-01-01 12:00+00'")
    with override_settings(TIME_ZONE="Asia/Tokyo", USE_TZ=True):
        assert "2999-01-01 21:00:00 JST" in only(job_id).text


def test_names_with_braces_and_percent_signs_are_told_as_they_are(served: None) -> None:
    evil = "{0} %s {queue!r} %(x)s"
    first, second = explain(insert_job(kind=evil, queue=evil))
    assert evil in first.text
    assert evil in second.text
