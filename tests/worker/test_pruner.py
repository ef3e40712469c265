"""Pruner: a pass that deletes all that is past its retention, and nothing else."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from awa_django.conf import Retention
from awa_django.storage.prune import PruneBatch, RetentionRule, prune
from awa_django.worker import pruner as module
from awa_django.worker.database import Session
from awa_django.worker.pruner import Pruner, retention_rules
from tests.factories import insert_job, reload_job, update_job
from tests.worker.conftest import AtWill

RETENTION = Retention(by_queue={"mail": {"completed": timedelta(hours=1), "failed": timedelta(0)}})


def test_rules_are_every_state_and_each_exception() -> None:
    day = 86400.0
    assert retention_rules(RETENTION) == [
        RetentionRule("completed", None, day),
        RetentionRule("failed", None, 7 * day),
        RetentionRule("cancelled", None, 7 * day),
        RetentionRule("completed", "mail", 3600.0),
        RetentionRule("failed", "mail", 0.0),
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
@pytest.mark.parametrize("batch", [1, 2, 100])
def test_a_pass_deletes_all_that_is_past_its_retention(
    session: Session, leader: AtWill, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(module, "BATCH", batch)
    kept: list[int] = []
    gone: list[int] = []
    for hours, queue, state, is_kept in (
        (30, "default", "failed", True),
        (30, "default", "completed", False),
        (29, "default", "completed", False),
        (2, "mail", "completed", False),
        (2, "default", "completed", True),
        (1.5, "mail", "failed", False),
        (0.5, "mail", "completed", True),
        (0.1, "mail", "cancelled", True),
    ):
        job_id = insert_job(state, queue=queue)
        update_job(job_id, finalized_at=f"now() - interval '{hours} hours'")
        (kept if is_kept else gone).append(job_id)
    pruner = Pruner(session, leader, interval=timedelta(seconds=15), retention=RETENTION)
    leader.leads = False
    pruner.tick()
    assert all(reload_job(job_id) for job_id in gone)
    leader.leads = True
    pruner.tick()
    assert [job_id for job_id in kept if reload_job(job_id) is None] == []
    assert [job_id for job_id in gone if reload_job(job_id) is not None] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_a_long_pass_is_not_made_again_at_once(
    session: Session, leader: AtWill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows a short retention makes it look at, it takes a small share of the time."""
    pruner = Pruner(session, leader, interval=timedelta(minutes=1), retention=RETENTION)
    leader.leads = True
    assert pruner.tick() == 60.0

    def slow(*args: Any, **kwargs: Any) -> PruneBatch:
        time.sleep(0.1)
        return prune(*args, **kwargs)

    monkeypatch.setattr(module, "prune", slow)
    monkeypatch.setattr(module, "LARGEST_SHARE", 0.001)
    wait = pruner.perform()
    assert wait is not None
    assert wait >= 100.0
