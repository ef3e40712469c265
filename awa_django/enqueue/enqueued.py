"""Enqueued: the answer to an enqueue."""

from __future__ import annotations

import msgspec

from awa_django.states import JobState


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The answer to an enqueue: ``id`` is the new job's, or that of the job that holds the unique key.

    ``holder_id`` is None when a job was ``created``. Where ``on_conflict`` asks to change the holder:
    whether it was ``updated``, and the ``holder_state`` it was found in, which says why not.
    """

    id: int
    created: bool = True
    holder_id: int | None = None
    updated: bool = False
    holder_state: JobState | None = None
