"""What an operation answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from awa_django.states import JobState


@dataclass(frozen=True, slots=True)
class Refusal:
    """A job that was left as it is. ``state`` is None when there is no such job."""

    job_id: int
    state: JobState | None
    reason: str


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The ids that were changed, and those that were not, each in ascending order."""

    changed: tuple[int, ...]
    refused: tuple[Refusal, ...]

    def beside(self, refused: Iterable[Refusal]) -> OperationResult:
        """With more that were left."""
        every = sorted((*self.refused, *refused), key=lambda job: job.job_id)
        return OperationResult(self.changed, tuple(every))


@dataclass(frozen=True, slots=True)
class QueueResult:
    """A queue after pause or resume. ``changed`` is False when it was so already."""

    queue: str
    paused: bool
    changed: bool
