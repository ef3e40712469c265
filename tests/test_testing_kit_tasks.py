"""The testing kit with tasks of django.tasks."""

from __future__ import annotations

import pytest
from django.test import TestCase

from awa_django import UnknownJobKind
from awa_django.testing import assert_enqueued, capture_jobs, drain, enqueued_jobs, inline, refute_enqueued
from tests.tasks_support import tasks, tasks_setting

__all__ = ["tasks_setting"]  # a fixture of each test here


class TasksTest(TestCase):
    def test_tasks_are_found_by_their_arguments(self) -> None:
        tasks.add.enqueue(1, right=2)
        tasks.mail.enqueue("ann")
        [found] = assert_enqueued(tasks.add, {"left": 1, "right": 2}, state="available")
        assert found.kind == tasks.add.module_path
        assert_enqueued(tasks.add, [1, 2])
        assert_enqueued(tasks.mail, ["ann"], queue="mail")
        refute_enqueued(tasks.add, [1])
        refute_enqueued(tasks.tell)
        assert [each.kind for each in enqueued_jobs(tasks.mail)] == [tasks.mail.module_path]

    def test_tasks_count_by_their_defaults(self) -> None:
        tasks.add.enqueue(1)
        assert_enqueued(tasks.add, {"left": 1, "right": 0})

    def test_tasks_are_captured_and_drained(self) -> None:
        with capture_jobs(tasks.add) as captured:
            result = tasks.add.enqueue(1, 2)
        assert [str(each.id) for each in captured] == [result.id]
        assert [run.outcome for run in drain()] == ["completed"]
        result.refresh()
        assert result.return_value == 3

    def test_a_task_of_another_backend_is_named(self) -> None:
        class Elsewhere:
            module_path = "elsewhere.tasks.send"

        with pytest.raises(UnknownJobKind, match=r"elsewhere\.tasks\.send"):
            assert_enqueued(Elsewhere())

    def test_tasks_run_inline_too(self) -> None:
        with inline() as runs:
            result = tasks.add.enqueue(1, 2)
        assert len(runs) == 1
        result.refresh()
        assert (result.status, result.return_value) == ("SUCCESSFUL", 3)
