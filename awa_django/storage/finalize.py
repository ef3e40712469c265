"""Finalize: every way out of ``running``, guarded by the lease.

Each function is one statement on the connection given, inside its transaction if one is open, and
answers with the ids that were still theirs. An absent id is stale (rescued, cancelled or ended
since the claim): drop its outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from awa_django.histogram import BOUNDS
from awa_django.states import JobState
from awa_django.storage._sql import Connection, attempt_arrays, fetch
from awa_django.storage.plan import planned_by_index
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending

# As text: it is in every statement here that ends runs.
_BOUNDS = "{" + ",".join(map(str, BOUNDS)) + "}"


def complete(connection: Connection, completions: Iterable[Completion]) -> set[int]:
    """running -> completed, with the results that are kept."""
    ordered = sorted(completions, key=lambda completion: completion.attempt)
    results = [completion.result for completion in ordered]
    with planned_by_index(connection) if len(ordered) > 1 else nullcontext():
        rows = fetch(
            connection,
            "complete",
            **attempt_arrays([completion.attempt for completion in ordered]),
            results=results if any(results) else None,
            bounds=_BOUNDS,
        )
    return {job_id for (job_id,) in rows}


def complete_and_delete(connection: Connection, attempts: Iterable[Attempt]) -> set[int]:
    """running -> gone: for queues that keep no completed jobs."""
    ordered = sorted(attempts)
    with planned_by_index(connection) if len(ordered) > 1 else nullcontext():
        rows = fetch(connection, "complete_and_delete", **attempt_arrays(ordered), bounds=_BOUNDS)
    return {job_id for (job_id,) in rows}


def finish(connection: Connection, endings: Iterable[Ending]) -> set[int]:
    """running -> failed or cancelled, with an error entry each."""
    ordered = sorted(endings, key=lambda ending: ending.attempt)
    rows = fetch(
        connection,
        "finish",
        **attempt_arrays([ending.attempt for ending in ordered]),
        states=[ending.state.value for ending in ordered],
        entries=[ending.entry for ending in ordered],
        bounds=_BOUNDS,
    )
    return {job_id for (job_id,) in rows}


def defer(connection: Connection, deferrals: Iterable[Deferral]) -> set[int]:
    """running -> retryable or scheduled, in the deferred table, due after the delay."""
    ordered = sorted(deferrals, key=lambda deferral: deferral.attempt)
    rows = fetch(
        connection,
        "defer",
        **attempt_arrays([deferral.attempt for deferral in ordered]),
        states=[deferral.state.value for deferral in ordered],
        delays=[deferral.delay for deferral in ordered],
        refunds=[int(deferral.refund) for deferral in ordered],
        entries=[deferral.entry for deferral in ordered],
        unknown_kinds=[deferral.unknown_kind for deferral in ordered],
        aging=[deferral.aging for deferral in ordered],
        bounds=_BOUNDS,
    )
    return {job_id for (job_id,) in rows}


def release(connection: Connection, attempts: Iterable[Attempt]) -> dict[int, str]:
    """running -> available, never started, the attempt given back; id -> queue."""
    return dict(fetch(connection, "release", **attempt_arrays(sorted(attempts))))


def surrender(connection: Connection, ending: Ending) -> set[int]:
    """running -> failed or cancelled, whatever the row itself has against it; needs an entry.

    For a job that can end in no other way: it may lose the right to its unique key in that state.
    """
    rows = fetch(
        connection,
        "surrender",
        job_id=ending.attempt.job_id,
        run_lease=ending.attempt.run_lease,
        state=ending.state.value,
        bit=list(JobState).index(ending.state),
        entry=ending.entry,
        bounds=_BOUNDS,
    )
    return {job_id for (job_id,) in rows}


def settled(
    connection: Connection, attempts: Sequence[Attempt], *, worker: str, gone_is_settled: Sequence[bool]
) -> set[int]:
    """The ids whose outcome was written by an earlier send whose answer got lost.

    ``gone_is_settled`` is parallel to ``attempts``: whether a missing row means done there.
    """
    rows = fetch(
        connection,
        "settled",
        **attempt_arrays(attempts),
        worker=worker,
        gone_is_settled=list(gone_is_settled),
    )
    return {job_id for (job_id,) in rows}
