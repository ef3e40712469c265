"""Two sessions, stepped: every order in which the statements of two operations can come.

Each session is a thread with a connection of its own that stops before each statement and each
commit until it is let go. One that waits for a lock of the other's is not a choice until it gets it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import psycopg
from django.db import connection
from django.db.backends.postgresql.base import Cursor

LONGEST_STEP = 30.0
# How long a statement may take before it is looked whether it waits for a lock.
LOOK_AFTER = 0.002

Operation = Callable[[], object]


class Gate:
    """Where a session waits to be let go; the scheduler waits for both."""

    def __init__(self, condition: threading.Condition) -> None:
        self._condition = condition
        self._is_open = False
        self.state = "done"

    def begin(self) -> None:
        self.state = "working"

    def wait(self) -> None:
        """Called by the session before each step."""
        with self._condition:
            self.state = "ready"
            self._condition.notify_all()
            while not self._is_open:
                assert self._condition.wait(LONGEST_STEP), "never let go"
            self._is_open = False
            self.state = "working"

    def open(self) -> None:
        with self._condition:
            self._is_open = True
            self.state = "working"
            self._condition.notify_all()

    def done(self) -> None:
        with self._condition:
            self.state = "done"
            self._condition.notify_all()

    def has_stopped(self, timeout: float) -> bool:
        with self._condition:
            return self._condition.wait_for(lambda: self.state != "working", timeout)


class Session:
    """A thread that does one operation after another, step by step."""

    def __init__(self, condition: threading.Condition) -> None:
        self.gate = Gate(condition)
        self.answer: object = None
        self._orders: SimpleQueue[Operation | None] = SimpleQueue()
        self._pids: SimpleQueue[int] = SimpleQueue()
        self._is_stepped = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.pid = self._pids.get(timeout=LONGEST_STEP)

    def order(self, operation: Operation) -> None:
        self.gate.begin()
        self._orders.put(operation)

    def close(self) -> None:
        self._orders.put(None)
        self._thread.join(LONGEST_STEP)

    def _serve(self) -> None:
        connection.ensure_connection()
        self._step_through(connection.connection)
        self._pids.put(connection.connection.info.backend_pid)
        while (operation := self._orders.get()) is not None:
            self._is_stepped = True
            try:
                self.answer = operation()
            except Exception as exc:  # noqa: BLE001  (an error is an answer too)
                self.answer = ("error", getattr(exc.__cause__ or exc, "sqlstate", None) or repr(exc))
            self._is_stepped = False
            if connection.in_atomic_block:  # cannot be, and would spoil what follows
                self.answer = ("open transaction", self.answer)
            self.gate.done()
        connection.close()

    def _step_through(self, raw: psycopg.Connection[Any]) -> None:
        session, commit = self, raw.commit

        class SteppedCursor(Cursor):
            def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
                if session._is_stepped and not str(query).startswith(("SAVEPOINT", "RELEASE", "ROLLBACK TO")):
                    session.gate.wait()
                return super().execute(query, *args, **kwargs)  # type: ignore[misc]

        def stepped_commit() -> None:
            if session._is_stepped:
                session.gate.wait()
            commit()

        raw.cursor_factory = SteppedCursor  # type: ignore[assignment]
        raw.commit = stepped_commit  # type: ignore[method-assign]
        raw.execute("SET lock_timeout = '20s'")


@dataclass(frozen=True, slots=True)
class Run:
    """What one order of the steps led to."""

    answers: tuple[object, object]
    steps: str
    """Whose step came when: a and b."""
    choices: tuple[tuple[str, str], ...]
    """At each step: who could have been let go, and who was."""
    waited: frozenset[str]
    """Who had to wait for a lock of the other."""


class Stepper:
    """Runs two operations in a given order of their steps."""

    def __init__(self, observer: psycopg.Connection[Any]) -> None:
        condition = threading.Condition()
        self._observer = observer
        self._sessions = {"a": Session(condition), "b": Session(condition)}

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def alone(self, operation: Operation) -> object:
        """The answer of an operation without a rival."""
        session = self._sessions["a"]
        session.order(operation)
        while self._has_stopped("a") and session.gate.state == "ready":
            session.gate.open()
        return session.answer

    def run(self, a: Operation, b: Operation, order: str, *, then: str = "ab") -> Run:
        """Let them go in this order, and after it the first of ``then`` that can."""
        for name, operation in (("a", a), ("b", b)):
            self._sessions[name].order(operation)
            assert self._sessions[name].gate.has_stopped(LONGEST_STEP)
        taken: list[tuple[str, str]] = []
        waited: set[str] = set()
        while ready := "".join(name for name in then if self._sessions[name].gate.state == "ready"):
            wanted = order[len(taken)] if len(taken) < len(order) else ready[0]
            name = wanted if wanted in ready else ready[0]
            taken.append((ready, name))
            self._sessions[name].gate.open()
            for each in (name, *(other for other in "ab" if other != name)):
                if not self._has_stopped(each):
                    waited.add(each)
            if all(session.gate.state == "working" for session in self._sessions.values()):
                # Each waits for the other: PostgreSQL ends one of them.
                assert any(session.gate.has_stopped(LONGEST_STEP) for session in self._sessions.values())
        assert all(session.gate.state == "done" for session in self._sessions.values())
        answers = (self._sessions["a"].answer, self._sessions["b"].answer)
        return Run(answers, "".join(name for _, name in taken), tuple(taken), frozenset(waited))

    def explore(self, a: Callable[[], Operation], b: Callable[[], Operation]) -> Iterator[Run]:
        """All orders. ``a`` and ``b`` make the operation anew, which is when the rows are put back."""
        order = ""
        while True:
            run = self.run(a(), b(), order)
            yield run
            names = list(run.steps)
            while names:
                ready, name = run.choices[len(names) - 1]
                if name == ready[0] and len(ready) > 1:
                    names[-1] = ready[1]
                    break
                names.pop()
            if not names:
                return
            order = "".join(names)

    def _has_stopped(self, name: str) -> bool:
        """Wait until the session is at its next step; False if it waits for the other one's lock."""
        session = self._sessions[name]
        while not session.gate.has_stopped(LOOK_AFTER):
            # By the other one, and not by a vacuum that passes.
            row = self._observer.execute(
                "SELECT pg_blocking_pids(%s) && %s::integer[]",
                [session.pid, [other.pid for other in self._sessions.values()]],
            ).fetchone()
            if row == (True,) and session.gate.state == "working":
                return False
        return True
