"""Children: what is told of those that die, and what follows from it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from awa_django.worker.child_process import ChildProcess
from awa_django.worker.children import Children
from awa_django.worker.options import make_options
from awa_django.worker.reconciler import Reconciler
from awa_django.worker.slots import Counter


class DeadChild:
    """A child that is dead whenever it is looked at."""

    budget = refusal = retired_at = None
    condemned: frozenset[object] = frozenset()
    ended_cleanly = False
    pid = 4711
    started_at = 0.0

    def __init__(self, *, ready: bool) -> None:
        self.ready = ready

    def __getitem__(self, counter: object) -> int:
        return 0

    def hear(self) -> None: ...

    def is_alive(self) -> bool:
        return False

    def how_it_died(self) -> str:
        return "exit code 1"

    def started(self) -> list[object]:
        return []

    def close(self) -> None: ...


class Undertaker:
    """A reconciler that has nothing to settle."""

    def bury(self, *_: Any, **__: Any) -> None: ...


class LivingChild:
    """A child of some size, in the middle of its life."""

    def __init__(self, megabytes: float, *, claimed: int = 1, overdue: tuple[object, ...] = ()) -> None:
        self.pid = 4711
        self.stopping = self.killed = False
        self.retired_at: float | None = None
        self._size = int(megabytes * 1_000_000)
        self._claimed = claimed
        self._overdue = overdue

    def __getitem__(self, counter: Counter) -> int:
        return self._claimed if counter == Counter.CLAIMED else 0

    def resident(self) -> int:
        return self._size

    def overdue(self, grace: float) -> tuple[object, ...]:
        return self._overdue

    def slots(self) -> tuple[object, ...]:
        return self._overdue

    def stop(self) -> None:
        self.stopping = True

    def retire(self) -> None:
        self.retired_at = 0.0
        self.stop()

    def kill(self) -> None:
        self.killed = True


def children_that_died(*ready: bool, killed: bool = False) -> Children:
    children = Children(make_options(queues="q", known_queues=[]), worker="w", application_name="a")
    for each in ready:
        children._living = [cast("ChildProcess", DeadChild(ready=each))]
        children.bury_the_dead(cast("Reconciler", Undertaker()), stopping=False, killed=killed)
    return children


def test_children_that_die_before_they_are_ready_say_more_than_their_exit_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What ends a process at its import may say nothing: a sys.exit() of the project's manage.py."""
    assert children_that_died(False, False).none_began
    said, again = caplog.messages
    assert said == again
    assert said.startswith("worker process 4711 died before it was ready (exit code 1): ")
    assert "manage.py" in said


@pytest.mark.parametrize("ready", [(True, False), (False, True)])
def test_one_that_was_ready_is_enough(ready: tuple[bool, ...], caplog: pytest.LogCaptureFixture) -> None:
    assert not children_that_died(*ready).none_began
    assert "worker process 4711 died (exit code 1)" in caplog.messages


def test_those_that_the_worker_ends_itself_have_not_died_early() -> None:
    assert not children_that_died(False, killed=True).none_began
    assert not children_that_died().none_began


def test_those_over_the_bound_of_memory_are_stopped_once_they_have_done_something() -> None:
    """One that is too large from the start would be replaced for ever, and no job ever run."""
    options = make_options(queues="q", known_queues=[], max_memory_per_child=100)
    children = Children(options, worker="w", application_name="a")
    large, small, fresh = LivingChild(100.1), LivingChild(100), LivingChild(500, claimed=0)
    children._living = [cast("ChildProcess", child) for child in (large, small, fresh)]
    children.stop_large()
    assert [child.stopping for child in (large, small, fresh)] == [True, False, False]


def test_one_that_was_stopped_and_whose_handler_ignores_its_timeout_is_replaced_all_the_same() -> None:
    """Else it would neither end nor claim for ever, and have no successor."""
    options = make_options(queues="q", known_queues=[], max_memory_per_child=100)
    children = Children(options, worker="w", application_name="a")
    stuck = LivingChild(150, overdue=("a run",))
    children._living = [cast("ChildProcess", stuck)]
    children.stop_large()
    children.retire_overdue()
    assert stuck.killed
    assert len(children._respawn_at) == 1
