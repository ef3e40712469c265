"""Around: what middleware puts round each enqueue, by the attribute ``enqueuing`` of its factory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from django.utils.module_loading import import_string

from awa_django import carry
from awa_django.enqueue.enqueued import Enqueued
from awa_django.errors import ConfigurationError


@dataclass(slots=True)
class Enqueuing:
    """One call that enqueues: of one job, or of a batch.

    ``kind`` and ``queue`` are None for a batch that may mix them. ``answers`` are there once it is done,
    a job each; those of duplicates too.
    """

    kind: str | None
    queue: str | None
    is_batch: bool = False
    answers: Sequence[Enqueued] = ()
    traceparent: str | None = field(default_factory=carry.traceparent.get)


Hook: TypeAlias = Callable[[Enqueuing], AbstractContextManager[object]]


@contextmanager
def surrounded(paths: tuple[str, ...], enqueuing: Enqueuing) -> Iterator[None]:
    """The hooks of this middleware round the block, the first outermost."""
    with ExitStack() as stack:
        for hook in hooks(paths):
            stack.enter_context(hook(enqueuing))
        yield


@cache
def hooks(paths: tuple[str, ...]) -> tuple[Hook, ...]:
    """The hooks that these factories have. Raises: ConfigurationError naming a path that is wrong."""
    found = []
    for path in paths:
        try:
            hook = getattr(import_string(path), "enqueuing", None)
        except ImportError as exc:
            raise ConfigurationError(f"AWA['MIDDLEWARE']: cannot import {path!r}: {exc}") from exc
        if hook is not None:
            found.append(hook)
    return tuple(found)
