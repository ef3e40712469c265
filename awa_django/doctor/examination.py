"""One examination: what is cheap to know at once, then every row, a range at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import psycopg
from django.db import OperationalError, connections, transaction

from awa_django.doctor.questions import BOUNDS, QUESTIONS, SCHEMA_OBJECTS, Finding, Question, Reads
from awa_django.storage import doctor as storage
from awa_django.storage import inspect
from awa_django.storage.limits import limit_reading
from awa_django.storage.operate import highest_id

# Rows of each table in a range: its questions take half a second together, and pin no snapshot for longer.
ROWS_AT_ONCE = 50_000
# Of a statement, where the examination is bounded in time.
LONGEST_STATEMENT = timedelta(seconds=10)
EXAMPLES = 20
_WHAT = {
    Reads.JOBS: "each job by itself",
    Reads.CLAIMS: "each unique claim",
    Reads.EVERYTHING: "jobs against each other",
}


@dataclass(slots=True)
class Diagnosis:
    """What was found, and what was not looked at, in words: nothing after a whole examination."""

    findings: list[Finding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class _TooSlow(Exception):
    """Time is up, of a statement or of all."""


class Examination:
    """Asks the questions of one database. ``values`` are those that questions name.

    Without ``longest`` it sees one snapshot and all rows, however long that takes. With it, each range
    of rows is a transaction of its own, and no further one is begun when the time is up. Inside an open
    transaction (a ``TestCase``) it uses that one as it is.
    """

    def __init__(
        self,
        using: str,
        values: Mapping[str, object],
        *,
        longest: timedelta | None,
        is_quick: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._connection = connections[using]
        self._values = values
        self._ends_at = None if longest is None else time.monotonic() + longest.total_seconds()
        self._is_quick = is_quick
        self._tell = tell
        self._found: dict[str, Finding] = {}
        self._left_out: list[str] = []

    def run(self) -> Diagnosis:
        if self._ends_at is None:
            with self._transaction():
                self._examine()
        else:
            self._examine()
        order = [SCHEMA_OBJECTS.name, "schema_version", *(question.name for question in QUESTIONS)]
        return Diagnosis(
            sorted(self._found.values(), key=lambda each: order.index(each.name)), self._left_out
        )

    def _examine(self) -> None:
        missing = SCHEMA_OBJECTS.ask(self._connection, {})
        self._take(missing)
        if missing is not None and any(example.startswith("relation") for example in missing.examples):
            return  # the other statements could not run
        self._take(_schema_version(self._connection))
        for question in self._ask(_all_that(Reads.LITTLE), self._values):
            self._left_out.append(f"{question.name}: took over {LONGEST_STATEMENT.total_seconds():.0f} s")
        if self._is_quick:
            for reads, what in _WHAT.items():
                self._leave_out(what, _all_that(reads))
            return
        self._walk(Reads.JOBS, storage.end_of_jobs)
        self._walk(Reads.CLAIMS, storage.end_of_claims)
        self._compare()

    def _walk(self, reads: Reads, end: Callable[..., Any]) -> None:
        """Ask of each row by itself, a range at a time."""
        questions = _all_that(reads)
        after: Any = None
        while questions:
            try:
                if self._is_over():
                    raise _TooSlow
                with self._bounded(limit_reading):
                    last = end(self._connection, after, row_count=ROWS_AT_ONCE)
            except _TooSlow:
                self._leave_out(self._rest(reads, after), questions)
                return
            bounds = dict(zip(BOUNDS[reads], (after, last), strict=True))
            if too_slow := self._ask(questions, {**self._values, **bounds}):
                self._leave_out(self._rest(reads, after), too_slow)
                questions = [question for question in questions if question not in too_slow]
            if last is None:
                return
            after = last
            if reads is Reads.JOBS:
                self._tell(f"looked at the jobs up to id {after:,} of {highest_id(self._connection):,}")

    def _compare(self) -> None:
        """Ask what takes all rows at once, each question by one statement."""
        for question in _all_that(Reads.EVERYTHING):
            self._tell(f"comparing all jobs: {question.name}")
            if self._is_over() or self._ask([question], self._values, settle=storage.join_whole_tables):
                self._leave_out(_WHAT[Reads.EVERYTHING], [question])

    def _ask(
        self,
        questions: Sequence[Question],
        values: Mapping[str, object],
        *,
        settle: Callable[..., object] = limit_reading,
    ) -> list[Question]:
        """Ask them in one snapshot; those that took too long. ``settle`` bounds and plans the statements."""
        pending, too_slow = list(questions), []
        while pending:
            try:
                with self._bounded(settle, questions[0].reads):
                    while pending:
                        self._take(pending[0].ask(self._connection, values))
                        del pending[0]
            except _TooSlow:
                too_slow.append(pending.pop(0))
        return too_slow

    @contextmanager
    def _bounded(self, settle: Callable[..., object], reads: Reads = Reads.LITTLE) -> Iterator[None]:
        """A transaction whose statements ``settle`` bounds and plans. Raises: _TooSlow."""
        try:
            with self._transaction():
                settle(self._connection, longest=self._longest(reads))
                yield
        except OperationalError as exc:
            if self._ends_at is None or not isinstance(exc.__cause__, psycopg.errors.QueryCanceled):
                raise
            raise _TooSlow from exc

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One snapshot, in the transaction that is open or a new one; what is set in it goes with it."""
        using = self._connection.alias
        is_outermost = not self._connection.in_atomic_block
        with transaction.atomic(using=using):
            if is_outermost:
                storage.read_one_snapshot(self._connection)
            yield
            transaction.set_rollback(True, using=using)

    def _take(self, finding: Finding | None) -> None:
        if finding is None:
            return
        before = self._found.get(finding.name)
        if before is not None:
            examples = (*before.examples, *finding.examples)[:EXAMPLES]
            finding = replace(finding, count=before.count + finding.count, examples=examples)
        self._found[finding.name] = finding

    def _longest(self, reads: Reads = Reads.LITTLE) -> timedelta | None:
        if self._ends_at is None:
            return None
        left = timedelta(seconds=self._ends_at - time.monotonic())
        return left if reads is Reads.EVERYTHING else LONGEST_STATEMENT

    def _is_over(self) -> bool:
        return self._ends_at is not None and time.monotonic() >= self._ends_at

    def _rest(self, reads: Reads, after: Any) -> str:
        if after is None:
            return _WHAT[reads]
        if reads is Reads.CLAIMS:
            return f"{_WHAT[reads]} behind the key {after.hex()}"
        return f"{_WHAT[reads]} above id {after:,} (the newest is {highest_id(self._connection):,})"

    def _leave_out(self, what: str, questions: Sequence[Question]) -> None:
        self._left_out.append(f"{what}: {', '.join(question.name for question in questions)}")


def _all_that(reads: Reads) -> list[Question]:
    return [question for question in QUESTIONS if question.reads is reads]


def _schema_version(connection: Any) -> Finding | None:
    found = inspect.schema_version(connection)
    if found == inspect.SCHEMA_VERSION:
        return None
    return Finding(
        invariant="SCHEMA",
        name="schema_version",
        title=f"the schema is not at version {inspect.SCHEMA_VERSION}, on which this code works",
        count=1,
        examples=(str(found),),
        advice="Run `manage.py migrate awa`, or upgrade awa-django if the schema is the newer one.",
    )
