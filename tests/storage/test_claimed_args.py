"""Large arguments stay behind at the claim, whose answer is bounded, and are read by the run alone."""

from __future__ import annotations

import json

import pytest
from django.db import connection

from awa_django.storage.claim import ClaimRequest, claim, claim_one, claimed_args
from awa_django.storage.rows import Attempt
from tests.factories import insert_job, update_job

pytestmark = pytest.mark.django_db

REQUEST = ClaimRequest(limits={"default": 10}, total=10, worker="w/1")
# 32 characters that compress to nothing smaller, each time.
RANDOM = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, %s))"
VALUES = {
    "small": ("repeat('x', 10)", True),
    "just below": (RANDOM % 1000, True),
    "just above": (RANDOM % 1030, False),
    "5 MB": (RANDOM % 160_000, False),
    "compressed, and still large": ("repeat(" + RANDOM % 400 + ", 100)", False),
    "compressed well": ("repeat('job ', 7000)", True),
    "few bytes compressed, many not": ("repeat('x', 500 * 1024)", False),
}


def insert(value: str) -> int:
    job_id = insert_job()
    update_job(job_id, args=f"jsonb_build_object('text', {value})")
    return job_id


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("singly", [False, True])
def test_claim_leaves_large_arguments_behind(name: str, singly: bool) -> None:
    value, comes_along = VALUES[name]
    job_id = insert(value)
    job = claim_one(connection, job_id, REQUEST) if singly else claim(connection, REQUEST)[0]
    assert job is not None
    assert (job.args is not None) == comes_along
    args = claimed_args(connection, job.key)
    assert args is not None
    assert job.args in (None, args)
    assert json.loads(args)["text"]


@pytest.mark.parametrize("queues", [["default"], ["default", "empty"]])
def test_a_claim_ends_at_eight_megabytes_of_arguments(queues: list[str]) -> None:
    """Every update of a row reads its arguments anew: 500 of 5 MB took longer than a statement may."""
    request = ClaimRequest(limits=dict.fromkeys(queues, 10), total=10, worker="w/1")
    ids = [insert(RANDOM % 160_000) for _ in range(4)] + [insert("'small'")]
    assert [job.id for job in claim(connection, request)] == ids[:2]
    assert [job.id for job in claim(connection, request)] == ids[2:4]
    assert [job.id for job in claim(connection, request)] == ids[4:]


def test_arguments_are_those_of_one_run_only() -> None:
    job_id = insert(RANDOM % 2000)
    [job] = claim(connection, REQUEST)
    assert claimed_args(connection, Attempt(job_id, job.run_lease + 1)) is None
    update_job(job_id, state="'cancelled'", finalized_at="now()", heartbeat_at="NULL")
    assert claimed_args(connection, job.key) is None
