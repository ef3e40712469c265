"""A child that cannot start says so, and why; its supervisor then starts no other. And how it is wired."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from datetime import timedelta

import pytest

from awa_django.worker import child, middleware
from awa_django.worker.child import REFUSED, Child, ChildSpec, run_child
from awa_django.worker.options import WorkerOptions
from awa_django.worker.slots import SlotTable
from tests.waiting import wait_until


@pytest.mark.parametrize("error", [LookupError("no key"), SystemExit("no key")], ids=repr)
def test_child_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def load() -> None:
        raise error

    monkeypatch.setattr(middleware, "load", load)
    monkeypatch.setattr(child, "watch_forks", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    spec = ChildSpec(
        name="w/1",
        application_name="awa-test",
        options=WorkerOptions(queues={"default": 1}, shutdown_timeout=timedelta(0)),
        slots=SlotTable.create(1),
    )
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        with pytest.raises(SystemExit) as ended:
            run_child(spec, theirs)
        assert ended.value.code == 1
        assert ours.recv() == (REFUSED, f"{type(error).__name__}: no key")


def test_executor_that_has_nothing_left_wakes_who_waits_for_room() -> None:
    options = WorkerOptions(queues={"default": 1})
    made = Child(
        ChildSpec(name="w/1", application_name="awa-test", options=options, slots=SlotTable.create(9))
    )
    waiting = threading.Thread(target=made.holdings.wait_for_room, args=(600.0,), daemon=True)
    waiting.start()

    def is_awake() -> bool:
        made.executor._on_empty()
        return not waiting.is_alive()

    wait_until(is_awake)
