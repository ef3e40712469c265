"""The rules of raw SQL through the view: insert, update and delete, and what it must refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis.stateful import precondition, rule

from tests.property import model_operator as operator
from tests.property.draws import INDEX, INSERTS, MASKS, QUEUE, UPDATES
from tests.property.machine import NAMES, Machine
from tests.property.model_operator import Refused


class RawSQL(Machine):
    @rule(drawn=INSERTS, mask=MASKS)
    def insert_by_sql(self, drawn: dict[str, Any], mask: str) -> None:
        values = {name: self.instant(value) for name, value in drawn.items()}
        if values.get("state") == "completed":
            values.pop("attempt", None)  # above max_attempts the doctor would say so
        if "key" in values:
            values |= {"unique_key": values.pop("key"), "unique_states": mask}
        names = ", ".join(values)
        marks = ", ".join(["%s"] * len(values))
        statement = f"INSERT INTO awa.jobs ({names}) VALUES ({marks}) RETURNING {NAMES}"
        draft = self.model.copy()
        placeholder = 0
        try:
            new = operator.insert_through_view(draft, placeholder, self.as_rows(values))
            holder_id = None if new.held_key is None else draft.claims.get(new.held_key)
            if holder_id is not None:
                raise Refused(operator.UNIQUE_VIOLATION)
        except Refused as exc:
            self.refused(statement, list(values.values()), exc.sqlstate)
            return
        [row] = self.execute(statement, list(values.values()))
        assert row.id > max(self.model.jobs, default=0)
        assert row == replace(new, id=row.id)
        self.model.put(row)

    @precondition(lambda self: self.model.jobs)
    @rule(index=INDEX, drawn=UPDATES)
    def update_by_sql(self, index: int, drawn: dict[str, Any]) -> None:
        [job_id] = self.ids([index])
        old = self.model.jobs[job_id]
        values = {name: self.instant(value) for name, value in drawn.items()}
        if old.state in ("running", "completed"):
            # What the doctor rightly calls a hand of somebody else's.
            values.pop("attempt", None)
            values.pop("max_attempts", None)
        if old.attempt > old.max_attempts and values.get("state") == "completed":
            values["state"] = "failed"
        if not values:
            return
        sets = ", ".join(f"{name} = %s" for name in values)
        parameters = [self.adapted(value) for value in values.values()]
        statement = f"UPDATE awa.jobs SET {sets} WHERE id = %s RETURNING {NAMES}"
        try:
            new = operator.update_through_view(self.model, old, self.as_rows(values))
            if new.held_key is not None and self.model.claims.get(new.held_key, job_id) != job_id:
                raise Refused(operator.UNIQUE_VIOLATION)
        except Refused as exc:
            self.refused(statement, [*parameters, job_id], exc.sqlstate)
            return
        assert self.execute(statement, [*parameters, job_id]) == [new]
        self.model.put(new)
        self.last_settled.pop(job_id, None)

    @rule(queue=QUEUE)
    def update_many_by_sql(self, queue: str) -> None:
        statement = f"UPDATE awa.jobs SET tags = tags || '{{many}}' WHERE queue = %s RETURNING {NAMES}"
        changed = [
            replace(job, tags=(*job.tags, "many")) for job in self.model.jobs.values() if job.queue == queue
        ]
        if any(len(job.tags) > 20 for job in changed):
            return
        rows = self.execute(statement, [queue])
        assert sorted(rows, key=lambda row: row.id) == sorted(changed, key=lambda row: row.id)
        for job in changed:
            self.model.put(job)

    @precondition(lambda self: self.model.jobs)
    @rule(index=INDEX)
    def delete_by_sql(self, index: int) -> None:
        [job_id] = self.ids([index])
        assert [
            row.id for row in self.execute(f"DELETE FROM awa.jobs WHERE id = %s RETURNING {NAMES}", [job_id])
        ] == [job_id]
        self.model.remove(job_id)
