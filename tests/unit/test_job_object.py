"""The Job object where code expects the function whose place it took."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction

from awa_django import Unique, job, registry
from tests.handlers import record, record_async


@pytest.mark.parametrize("same", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_job_is_copied_and_pickled_as_a_function_is(same: object) -> None:
    """A pool of processes gets it as work to do; a cache or a deep copy of settings has it in a value."""
    assert callable(same)
    assert same(record) is record
    assert same({"job": record_async})["job"] is record_async


def test_job_with_options_is_pickled_with_them() -> None:
    chosen = record.using(delay=timedelta(seconds=5), tags=["a"], unique=Unique(args=True))
    restored = pickle.loads(pickle.dumps(chosen))
    assert restored.options == chosen.options
    assert restored.handler is record.handler
    assert type(restored) is type(chosen)


@pytest.mark.filterwarnings("error")
def test_job_of_an_async_function_is_known_as_one() -> None:
    assert iscoroutinefunction(record_async)
    assert iscoroutinefunction(record_async.using(priority=1))
    assert not iscoroutinefunction(record)

    @job(kind="t.answer")
    async def answer() -> int:
        return 42

    registry.unregister(answer.handler)
    assert async_to_sync(answer)() == 42
