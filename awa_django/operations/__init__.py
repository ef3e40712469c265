"""An operator's verbs: cancel, retry, run now, reschedule, set priority, move, delete; pause and resume.

They work on Django's connection, inside whatever transaction is open there. One job that cannot be
changed never stops the others: the answer says which were changed, and why each other one was not.
"""

from __future__ import annotations

from awa_django.operations.arguments import edit_args
from awa_django.operations.batches import BATCH
from awa_django.operations.change import Change
from awa_django.operations.limits import HIGHEST_PRIORITY, LONGEST_NAME, LOWEST_PRIORITY
from awa_django.operations.matching import cancel_matching
from awa_django.operations.queues import pause_queue, resume_queue
from awa_django.operations.results import OperationResult, QueueResult, Refusal
from awa_django.operations.verbs import (
    cancel,
    cancel_holder,
    delete,
    move_queue,
    reschedule,
    retry,
    run_now,
    set_priority,
)
from awa_django.storage.rows import LARGEST_ID

__all__ = [
    "BATCH",
    "HIGHEST_PRIORITY",
    "LARGEST_ID",
    "LONGEST_NAME",
    "LOWEST_PRIORITY",
    "Change",
    "OperationResult",
    "QueueResult",
    "Refusal",
    "cancel",
    "cancel_holder",
    "cancel_matching",
    "delete",
    "edit_args",
    "move_queue",
    "pause_queue",
    "reschedule",
    "resume_queue",
    "retry",
    "run_now",
    "set_priority",
]
