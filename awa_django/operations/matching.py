"""Operations on all jobs that match, however many: looked through in bounded pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django.db import connections, transaction

from awa_django.codec import clean_text
from awa_django.conf import get_settings
from awa_django.operations import batches
from awa_django.operations.limits import LONGEST_NAME
from awa_django.operations.results import OperationResult, Refusal
from awa_django.operations.verbs import cancel
from awa_django.states import UNFINISHED_STATES, JobState
from awa_django.storage import operate
from awa_django.storage.operate import Located, Table

# Rows looked through per statement for those that match: some 10 ms, however few they are.
LOOK = 10_000
_TABLES: tuple[Table, ...] = ("hot", "deferred")
_UNFINISHED: list[str] = sorted(UNFINISHED_STATES)


def look_through(
    connection: Any, match: operate.Match, table: Table, *, after_id: int = 0
) -> Iterator[tuple[int, list[int]]]:
    """The jobs of a table that match, in batches: the id up to which all is done with the batch, and its ids.

    No statement reads more than ``LOOK`` rows: a look ends with an empty batch, so that the place is known
    where nothing matches, too.
    """
    last_id: int | None = after_id
    while last_id is not None:
        last_id, job_ids = operate.matching(connection, match, table=table, after_id=last_id, row_count=LOOK)
        for start in range(0, len(job_ids), batches.BATCH):
            some = job_ids[start : start + batches.BATCH]
            yield some[-1], some
        if last_id is not None:
            yield last_id, []


def apply_to_matching(
    apply: Callable[[list[int]], OperationResult],
    match: operate.Match,
    job_ids: Sequence[int],
    *,
    using: str,
    explain: Callable[[Located], str] = lambda _: "matches no more",
) -> OperationResult:
    """Do it to those of the jobs that match still, in one transaction; the others are refused.

    They were found before: meanwhile somebody may have retried one that has failed, and an operation that
    would take it in its new state as well is not meant for it. ``explain`` says why it was refused.
    """
    if not job_ids:
        return OperationResult((), ())
    connection = connections[using]
    with transaction.atomic(using=using):
        matching = operate.still_matching(connection, match, job_ids)
        result = apply(matching)
        if len(matching) == len(job_ids):
            return result
        moved_on = sorted(set(job_ids).difference(matching))
        now = operate.locate(connection, moved_on)
    refused = [
        Refusal(job_id, JobState(now[job_id].state), explain(now[job_id]))
        if job_id in now
        else Refusal(job_id, None, "does not exist")
        for job_id in moved_on
    ]
    return result.beside(refused)


def cancel_matching(
    *,
    kind: str | None = None,
    queue: str | None = None,
    tags: Iterable[str] = (),
    by: str | None = None,
    reason: str = "",
    on_batch: Callable[[int], object] | None = None,
    using: str | None = None,
) -> int:
    """Cancel all jobs that match and have not ended, as ``cancel`` does; how many.

    ``tags``: jobs that have all of them. Jobs that were enqueued since it began are left. It goes in
    batches of ``BATCH``, each its own transaction unless one is open, and tells ``on_batch`` how many
    are cancelled so far. No statement locks or reads more than a batch, or some thousands of rows that
    may not match. Where it broke off (or ``on_batch`` raised) the next call goes on: what is cancelled
    matches no more.

    Raises:
        ValueError: nothing is given to match, or the tags are a string.
    """
    if isinstance(tags, str):  # its letters would be looked for
        raise ValueError(f"tags must be a list of strings, not {tags!r}")
    wanted = [clean_text(tag, LONGEST_NAME) for tag in tags]
    if kind is None and queue is None and not wanted:
        raise ValueError("cancel_matching needs a kind, a queue or tags: it does not cancel everything")
    connection = connections[using or get_settings().database]
    match = operate.Match(
        operate.highest_id(connection), states=_UNFINISHED, kind=kind, queue=queue, tags=wanted or None
    )
    cancelled_count = 0
    # A job may move to the table that was looked through already: until a pass finds none, or a storm.
    for _ in range(batches.ROUNDS):
        found_count = 0
        for table in _TABLES:
            for _last_id, some in look_through(connection, match, table):
                if not some:
                    continue
                found_count += len(some)
                cancelled_count += len(cancel(some, by=by, reason=reason, using=using).changed)
                if on_batch is not None:
                    on_batch(cancelled_count)
        if not found_count:
            break
    return cancelled_count
