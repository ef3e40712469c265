"""What all rules of ``test_model`` stand on: the database beside its model, and how they are compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

import psycopg
import pytest
from django.db import connection, transaction
from django.db.utils import Error as DatabaseError
from hypothesis.stateful import RuleBasedStateMachine, invariant

from awa_django.doctor import diagnose
from awa_django.storage.rows import Attempt, ClaimedJob
from tests.property.model import FIRST_DATE, Between, Entry, Model, ModelJob
from tests.property.nested import Nested, NestedSession
from tests.worker.conftest import AtWill

T = TypeVar("T")
Candidate = tuple[Model, object]

GONE = ModelJob(
    id=0, kind="", state="cancelled", run_at=Between(FIRST_DATE, FIRST_DATE), created_at=FIRST_DATE
)
COLUMNS = tuple(ModelJob.__dataclass_fields__)
NAMES = ", ".join(COLUMNS)
SELECT = f"SELECT {NAMES} FROM awa.jobs_hot UNION ALL SELECT {NAMES} FROM awa.scheduled_jobs"
NO_DOCTOR = {"stale_running", "overdue_running", "overdue_deferred"}  # time travel makes these


class Machine(RuleBasedStateMachine):
    """One transaction, its model, and how they are compared after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        with connection.cursor() as cursor:
            cursor.execute("SELECT now()")
            self.now: datetime = cursor.fetchone()[0]
        nested = Nested(connection.connection)
        self.worker = cast("psycopg.Connection[tuple[Any, ...]]", nested)
        self.session = NestedSession(nested)
        self.leader = AtWill(self.session)
        self.model = Model(self.now)
        self.runs: list[tuple[ClaimedJob, str]] = []
        """The claims so far, each with its worker."""
        self.last_settled: dict[int, tuple[Attempt, str]] = {}
        self.steps = 0

    def teardown(self) -> None:
        try:
            if not connection.needs_rollback:  # else a step has failed already, and it says more
                self.is_sound()
        finally:
            transaction.set_rollback(True)
            self.atomic.__exit__(None, None, None)

    def pass_time(self, job_id: int, column: str, by: timedelta) -> None:
        """For this timestamp of this row only; the rest of the world stands still."""
        job = self.model.jobs.get(job_id)
        if job is None or getattr(job, column) is None:
            return
        self.model.put(replace(job, **{column: getattr(job, column) - by}))
        table = "scheduled_jobs" if job.is_deferred else "jobs_hot"
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE awa.{table} SET {column} = {column} - %s::interval WHERE id = %s", [str(by), job_id]
            )

    @invariant()
    def rows_agree(self) -> None:
        self.steps += 1
        rows = self.rows()
        assert rows == self.adopt_instants(self.model, rows)
        assert self.claims() == self.model.claims
        if self.steps % 16 == 0:
            self.is_sound()

    def agree(self, candidates: Sequence[Candidate], answer: object) -> None:
        """Rows and answer are those of one of the candidates, which becomes the model."""
        rows = self.rows()
        for model, expected in candidates:
            if self.adopt_instants(model, rows) == rows and expected == answer:
                self.forget_changed(model)
                self.model.adopt(model)
                return
        model, expected = candidates[0]
        assert answer == expected
        assert rows == model.jobs

    def forget_changed(self, model: Model) -> None:
        for job_id in [*self.last_settled]:
            if model.jobs.get(job_id) != self.model.jobs.get(job_id):
                del self.last_settled[job_id]

    def adopt_instants(self, model: Model, rows: dict[int, ModelJob]) -> dict[int, ModelJob]:
        """The model's jobs, with the instants of the rows where these are within a known jitter."""
        for job_id, job in list(model.jobs.items()):
            row = rows.get(job_id)
            if row is not None and isinstance(job.run_at, Between):
                assert isinstance(row.run_at, datetime)
                if job.run_at.earliest <= row.run_at <= job.run_at.latest:
                    model.jobs[job_id] = replace(job, run_at=row.run_at)
        return dict(sorted(model.jobs.items()))

    def is_sound(self) -> None:
        findings = [
            finding for finding in diagnose() if finding.name not in NO_DOCTOR and not finding.is_warning
        ]
        assert not findings, "\n".join(map(str, findings))

    def rows(self) -> dict[int, ModelJob]:
        rows = self.execute(SELECT)
        assert len({row.id for row in rows}) == len(rows), "a job is in both tables"
        return {row.id: row for row in sorted(rows, key=lambda row: row.id)}

    def claims(self) -> dict[bytes, int]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT unique_key, job_id FROM awa.job_unique_claims")
            return {bytes(key): job_id for key, job_id in cursor.fetchall()}

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[ModelJob]:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, [self.adapted(value) for value in parameters])
            return [as_job(row) for row in cursor.fetchall()]

    def refused(self, statement: str, parameters: Sequence[object], sqlstate: str) -> None:
        with pytest.raises(DatabaseError) as caught:
            self.execute(statement, parameters)
        assert getattr(caught.value.__cause__, "sqlstate", None) == sqlstate, str(caught.value)

    def drawn_runs(self, indexes: Sequence[int]) -> list[tuple[ClaimedJob, str]]:
        """Some of the runs: mostly those of jobs that run now, be it under this lease or a later one."""
        live = [run for run in self.runs if self.model.jobs.get(run[0].id, GONE).state == "running"]
        pool = live[-6:] if live and min(indexes) < 24 else self.runs[-6:]
        chosen = {index % len(pool) for index in indexes} if pool else set()
        return [pool[place] for place in sorted(chosen)]

    def ids(self, indexes: Sequence[int]) -> list[int]:
        """Some jobs of the model, newest first; a job that never was when there is none."""
        known = sorted(self.model.jobs, reverse=True)
        return [known[index % len(known)] for index in indexes] if known else [2**61]

    def instant(self, value: T) -> T | datetime:
        return self.now + value if isinstance(value, timedelta) else value

    @staticmethod
    def as_rows(values: dict[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if name == "tags" else value for name, value in values.items()}

    @staticmethod
    def adapted(value: Any) -> Any:
        if isinstance(value, dict) or (isinstance(value, list) and value and not isinstance(value[0], str)):
            return json.dumps(value)
        return value


def as_job(row: Sequence[Any]) -> ModelJob:
    values = dict(zip(COLUMNS, row, strict=True))
    for name in ("args", "metadata", "progress", "result"):
        values[name] = None if values[name] is None else json.loads(values[name])
    values["errors"] = tuple(as_entry(json.loads(entry)) for entry in values["errors"])
    values["tags"] = tuple(values["tags"])
    values["unique_key"] = None if values["unique_key"] is None else bytes(values["unique_key"])
    return ModelJob(**values)


def as_entry(entry: dict[str, Any]) -> Entry:
    assert entry["error"]
    datetime.fromisoformat(entry["at"])
    return Entry(entry["outcome"], entry["attempt"], entry.get("run_lease"), entry["worker"], entry.get("by"))
