"""The audit of transitions: triggers, for tests only, that write down each step of each job.

``install`` puts them on both physical tables, ``judge`` says which steps were not legal. The log is
a witness of its own: it knows nothing of how the engine moves jobs, only which moves are allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import psycopg

from awa_django.states import JobState

# Sessions of this name change rows by hand: their steps are written down, and not judged.
BY_HAND = "by hand"

_INSTALL = """
DROP SCHEMA IF EXISTS audit CASCADE;
CREATE SCHEMA audit;
CREATE TABLE audit.step (
    number bigint GENERATED ALWAYS AS IDENTITY,
    tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    session text NOT NULL DEFAULT current_setting('application_name'),
    id bigint NOT NULL,
    old_state text, new_state text,
    old_lease bigint, new_lease bigint,
    old_attempt integer, new_attempt integer,
    old_errors integer, new_errors integer,
    max_attempts integer
);
CREATE FUNCTION audit.note() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO audit.step (id, old_state, new_state, old_lease, new_lease, old_attempt, new_attempt,
        old_errors, new_errors, max_attempts)
    VALUES (coalesce(NEW.id, OLD.id), OLD.state, NEW.state, OLD.run_lease, NEW.run_lease,
        OLD.attempt, NEW.attempt, cardinality(OLD.errors), cardinality(NEW.errors),
        coalesce(NEW.max_attempts, OLD.max_attempts));
    RETURN NULL;
END
$$;
GRANT USAGE ON SCHEMA audit TO PUBLIC;
GRANT INSERT ON audit.step TO PUBLIC;
CREATE TRIGGER audit_moves AFTER INSERT OR DELETE ON awa.jobs_hot
    FOR EACH ROW EXECUTE FUNCTION audit.note();
CREATE TRIGGER audit_moves AFTER INSERT OR DELETE ON awa.scheduled_jobs
    FOR EACH ROW EXECUTE FUNCTION audit.note();
CREATE TRIGGER audit_steps AFTER UPDATE ON awa.jobs_hot FOR EACH ROW
    WHEN ((OLD.id, OLD.state, OLD.run_lease, OLD.attempt, OLD.max_attempts)
        IS DISTINCT FROM (NEW.id, NEW.state, NEW.run_lease, NEW.attempt, NEW.max_attempts)
        OR cardinality(OLD.errors) <> cardinality(NEW.errors))
    EXECUTE FUNCTION audit.note();
CREATE TRIGGER audit_steps AFTER UPDATE ON awa.scheduled_jobs FOR EACH ROW
    WHEN ((OLD.id, OLD.state, OLD.run_lease, OLD.attempt, OLD.max_attempts)
        IS DISTINCT FROM (NEW.id, NEW.state, NEW.run_lease, NEW.attempt, NEW.max_attempts)
        OR cardinality(OLD.errors) <> cardinality(NEW.errors))
    EXECUTE FUNCTION audit.note();
"""

_READ = """
SELECT tx::text::bigint, session, id, old_state, new_state, old_lease, new_lease,
    old_attempt, new_attempt, old_errors, new_errors, max_attempts
FROM audit.step
ORDER BY id, number
"""

# What may follow a state; None: the row is new, or gone. A job leaves as it is when it has ended, when
# it completes where nothing is kept, or by somebody's explicit DELETE.
STATES = [str(state) for state in JobState]
EDGES: dict[str | None, frozenset[str | None]] = {
    None: frozenset(STATES),  # what may be inserted is the view's own concern
    "scheduled": frozenset({"available", "cancelled", None}),
    "available": frozenset({"running", "cancelled", "scheduled", "failed", None}),
    "running": frozenset(
        {"completed", "retryable", "scheduled", "available", "failed", "cancelled", "waiting_external", None}
    ),
    "waiting_external": frozenset(
        {"running", "completed", "failed", "retryable", "cancelled", "available", None}
    ),
    "retryable": frozenset({"available", "cancelled", None}),
    "failed": frozenset({"available", None}),
    "cancelled": frozenset({"available", None}),
    "completed": frozenset({None}),
}
# Ends of a run that are told in the row's history, in exactly one entry. (Cancelled by an operator
# while it runs, a job has none.)
_TOLD = frozenset({"retryable", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of one row; the old side is None for a new row, the new side for one that is gone."""

    tx: int
    session: str
    id: int
    old_state: str | None = None
    new_state: str | None = None
    old_lease: int | None = None
    new_lease: int | None = None
    old_attempt: int | None = None
    new_attempt: int | None = None
    old_errors: int | None = None
    new_errors: int | None = None
    max_attempts: int = 25

    def __str__(self) -> str:
        return (
            f"job {self.id}: {self.old_state} -> {self.new_state}, "
            f"lease {self.old_lease} -> {self.new_lease}, "
            f"attempt {self.old_attempt} -> {self.new_attempt} of {self.max_attempts}, "
            f"errors {self.old_errors} -> {self.new_errors} (by {self.session or 'a nameless session'})"
        )


def install(connection: psycopg.Connection[Any]) -> None:
    """Begin to write down, with an empty log."""
    connection.execute(_INSTALL)


def remove(connection: psycopg.Connection[Any]) -> None:
    """Write down no more, and forget."""
    connection.execute("DROP SCHEMA IF EXISTS audit CASCADE")


def steps(connection: psycopg.Connection[Any]) -> list[Step]:
    """All steps so far, by job; a move from table to table is one."""
    names = list(Step.__dataclass_fields__)
    read = [Step(**dict(zip(names, row, strict=True))) for row in connection.execute(_READ)]
    return [step for _, group in groupby(read, key=lambda step: step.id) for step in _moves_joined(group)]


def judge(found: Iterable[Step]) -> list[str]:
    """What was not legal, in words."""
    wrong = []
    for _, group in groupby(found, key=lambda step: step.id):
        before: Step | None = None
        for step in group:
            wrong += [f"{what}: {step}" for what in _complaints(step, before)]
            before = step
    return wrong


def _moves_joined(group: Iterable[Step]) -> list[Step]:
    """A delete and an insert of one job in one transaction are one step, in whichever order."""
    joined: list[Step] = []
    for step in group:
        last = joined[-1] if joined else None
        if last is not None and last.tx == step.tx and last.new_state is None and step.old_state is None:
            joined[-1] = _move(gone=last, arrived=step)
        elif last is not None and last.tx == step.tx and last.old_state is None and step.new_state is None:
            # The row of the other table goes after its copy has come; a copy's own end is another matter.
            known = len(joined) > 1 and joined[-2].new_state == step.old_state
            if known:
                joined[-1] = _move(gone=step, arrived=last)
            else:
                joined.append(step)
        else:
            joined.append(step)
    return joined


def _move(*, gone: Step, arrived: Step) -> Step:
    return replace(
        arrived,
        old_state=gone.old_state,
        old_lease=gone.old_lease,
        old_attempt=gone.old_attempt,
        old_errors=gone.old_errors,
    )


def _complaints(step: Step, before: Step | None) -> Sequence[str]:
    if before is not None:
        was = (before.new_state, before.new_lease, before.new_attempt)
        if was != (step.old_state, step.old_lease, step.old_attempt):
            return ["a change that left no trace"]
    elif step.old_state is not None:
        return ["a change that left no trace"]
    if step.session == BY_HAND:
        return []
    if step.old_state == step.new_state:
        same = (step.old_lease, step.old_attempt) == (step.new_lease, step.new_attempt)
        return [] if same else ["lease or attempt changed without a change of state"]
    wrong = []
    if step.new_state not in EDGES[step.old_state]:
        wrong.append("an edge that must not be")
    if step.old_state is None or step.new_state is None:
        return wrong
    assert step.old_lease is not None
    if step.new_lease != step.old_lease + (step.new_state == "running"):
        wrong.append("the lease grows by one with each claim, and never else")
    if step.new_attempt not in _attempts_after(step):
        wrong.append("wrong arithmetic of attempts")
    assert step.old_errors is not None
    assert step.new_errors is not None
    grown = step.new_errors - step.old_errors
    if step.old_state == "running" and step.new_state in _TOLD and grown != 1:
        wrong.append("an ended run adds one entry to the history")
    elif grown not in (0, 1) or (grown and step.new_state in ("running", "available", "completed")):
        wrong.append("an entry of the history that nobody may write")
    return wrong


def _attempts_after(step: Step) -> tuple[int, ...]:
    """What the attempt may be after the step."""
    before = step.old_attempt
    assert before is not None
    bounded = min(before, step.max_attempts)  # above it only by raw SQL
    match step.old_state, step.new_state:
        case _, "running":
            return (bounded + 1,)
        case "running", ("available" | "scheduled"):
            return (max(before - 1, 0),)
        case (("failed" | "cancelled" | "waiting_external"), "available"):
            return (0,)
        case "running", _:
            return (before, bounded)
        case _:
            return (before,)
