"""Change the arguments of a job that does not run: exact JSON, checked as its kind declares them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import DataError, connections, transaction

from awa_django import registry
from awa_django.codec import JSON
from awa_django.conf import get_settings
from awa_django.errors import InvalidJob
from awa_django.exact_json import read
from awa_django.job_secrets import former_secrets, secret_names
from awa_django.operations.batches import ROUNDS
from awa_django.operations.change import BULK_KIND
from awa_django.operations.results import OperationResult, Refusal
from awa_django.redaction import secret_values
from awa_django.states import DEFERRED_STATES, JobState
from awa_django.storage import operate
from awa_django.storage.operate import Editable
from awa_django.storage.rows import LARGEST_ID

EDITABLE_STATES = DEFERRED_STATES | {JobState.AVAILABLE, JobState.FAILED, JobState.CANCELLED}


def edit_args(
    job_id: int, args: str, *, seen: str | None = None, using: str | None = None
) -> OperationResult:
    """Give a job other arguments, as JSON text: of one that has not started, has failed or was cancelled.

    Where this process knows its kind they must fit the handler. ``seen`` is the JSON text of the arguments
    that the change was made for: a job that has others by now is refused. A unique key is never changed:
    a job that has one is refused where the key is made of what changes, or of what cannot be told. The
    job's metadata keep the secret values that go, so that they stay masked in the errors of old attempts.

    Raises:
        InvalidJob: a ValueError, when the text is no JSON object, is too large or does not fit the kind.
    """
    alias = using or get_settings().database
    connection = connections[alias]
    wanted = read(args)
    for _ in range(ROUNDS):
        job = operate.editable_args(connection, job_id) if 0 < job_id <= LARGEST_ID else None
        if job is None:
            return _refused(job_id, None, "does not exist")
        state = JobState(job.state)
        if state not in EDITABLE_STATES:
            return _refused(job_id, state, f"is {state}")
        if job.kind == BULK_KIND:  # else who may edit could have it do what they may not
            return _refused(job_id, state, "does what somebody confirmed, and nothing else")
        before = read(job.args, checks=False)
        if before == wanted:
            return _refused(job_id, state, "has these arguments already")
        if seen is not None and read(seen, checks=False) != before:
            return _refused(job_id, state, "has got other arguments meanwhile")
        check_args(job.kind, args)
        if reason := _changes_key(job, args):
            return _refused(job_id, state, reason)
        try:
            with transaction.atomic(using=alias):
                if operate.edit_args(
                    connection, job_id, args=args, seen_args=job.args, former=_former_secrets(job, args)
                ):
                    return OperationResult((job_id,), ())
        except DataError as exc:  # a number beyond what numeric holds
            raise InvalidJob(f"PostgreSQL cannot store these arguments: {exc}") from exc
    return _refused(job_id, state, "kept moving on: try again")


def check_args(kind: str, args: str) -> None:
    """Raises: InvalidJob when the text is too large, or does not fit the kind, if this process knows it."""
    largest = get_settings().max_args_bytes
    size = len(args.encode())
    if size > largest:
        raise InvalidJob(f"the arguments take {size} bytes, AWA['MAX_ARGS_BYTES'] allows {largest}")
    handler = registry.find(kind)
    if handler is not None:
        handler.decode(args)


def _former_secrets(job: Editable, args: str) -> list[str]:
    """The secret values that the job had and has no more, and that it does not remember yet."""
    names = secret_names(job.kind, job.secret)
    gone = secret_values(job.args, names) - secret_values(args, names)
    return sorted(gone - former_secrets(job.secret))


def _refused(job_id: int, state: JobState | None, reason: str) -> OperationResult:
    return OperationResult((), (Refusal(job_id, state, reason),))


def _changes_key(job: Editable, args: str) -> str | None:
    """Why the job's unique key may not be that of the new arguments; None when it is, or there is none."""
    if job.unique_key is None:
        return None
    untold = "has a unique key, and it cannot be told here whether it is made of its arguments"
    handler = registry.find(job.kind)
    if handler is None or handler.unique is None:
        return untold
    try:
        before, after = handler.key_args(job.args), handler.key_args(args)
        for at in (job.run_at, job.created_at):
            if _key(handler, job, before, at) == job.unique_key:
                is_same = _key(handler, job, after, at) == job.unique_key
                return None if is_same else "has a unique key that is made of what was changed"
    except InvalidJob:
        pass
    return untold


def _key(handler: Any, job: Editable, args: Mapping[str, JSON], at: datetime) -> bytes:
    key: bytes = handler.unique.key(handler.kind, queue=job.queue, args=args, at=at)
    return key
