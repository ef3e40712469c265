"""The Job object: a declared handler, and the verbs of whoever wants it run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypedDict, TypeVar, Unpack, cast

from asgiref.sync import markcoroutinefunction, sync_to_async

from awa_django import operations
from awa_django.context import JobContext
from awa_django.enqueue import Enqueued, Item, Options, components, enqueue, enqueue_many, find_holder
from awa_django.handler import Handler
from awa_django.jobs.snapshot import JobSnapshot, read_snapshot
from awa_django.retry import RetryPolicy
from awa_django.unique import Unique

# What enqueues in other libraries, for who comes from them.
ELSEWHERE = {
    "delay": "enqueue(...)",
    "delay_on_commit": "enqueue(...), which waits for your transaction by itself",
    "apply_async": "using(delay=..., run_at=..., queue=...).enqueue(...)",
    "defer": "enqueue(...)",
    "configure": "using(...)",
    "s": "item(...), for enqueue_many",
}
P = ParamSpec("P")
R = TypeVar("R")


class UsingOptions(TypedDict, total=False):
    """The options of ``Job.using``; see ``enqueue.Options``."""

    run_at: datetime | None
    delay: timedelta | float | None
    priority: int
    queue: str
    max_attempts: int
    unique: Unique | None
    tags: Iterable[str]
    metadata: Mapping[str, object]
    timeout: timedelta | float | None
    max_age: timedelta | float | None
    retry: RetryPolicy | None


class Job(Generic[P, R]):
    """A handler that can be enqueued. Called directly, it is the function itself."""

    __name__: str
    __qualname__: str

    def __init__(self, handler: Handler, options: Options | None = None) -> None:
        update_wrapper(cast("Callable[..., object]", self), handler.function)
        self.handler = handler
        self.options = options or Options()
        if handler.is_async:  # so that ``async_to_sync(job)`` and the like see what a call answers
            markcoroutinefunction(cast("Callable[..., object]", self))

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By its name, as the function is pickled whose place it took."""
        if self.handler.declared_as is self:
            return self.__qualname__
        return _with_options, (self.handler.declared_as, self.options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", self.handler.function(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.handler.kind}>"

    if not TYPE_CHECKING:  # or any name would be fine with type checkers

        def __getattr__(self, name: str) -> NoReturn:
            hint = ELSEWHERE.get(name)
            told = "" if hint is None else f"; here it is {hint}"
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{told}", name=name, obj=self
            )

    def using(self, **options: Unpack[UsingOptions]) -> Job[P, R]:
        """This job with options for one enqueue or more; those given earlier stay.

        ``run_at`` (an aware datetime) or ``delay`` (timedelta or seconds from the database's now):
        when. ``priority`` 1 (first) to 4, ``queue``, ``max_attempts``, ``unique`` (None for none),
        ``tags``, ``metadata`` (a JSON object), ``timeout``, ``max_age`` and ``retry``: as declared by
        ``@job``, for these jobs only. A policy must be one that can be stored: Exponential, Linear or Fixed.

        Raises: TypeError for an unknown option; InvalidJob naming one whose value is refused.
        """
        return type(self)(self.handler, self.options.updated(**options))

    def item(self, *args: P.args, **kwargs: P.kwargs) -> Item:
        """One job for ``enqueue_many``. Raises: InvalidJob when the arguments do not fit the signature."""
        return Item(handler=self.handler, arguments=self.handler.bind(args, kwargs), options=self.options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Put the job into the queue, in the transaction that is open: it is there if that commits.

        Raises: InvalidJob naming the argument or option that is refused, before anything is
        written; UniqueConflict with ``Unique(on_conflict="raise")``.
        """
        return enqueue(self.item(*args, **kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """``enqueue`` for async code, on the thread of Django's database connections."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)(*args, **kwargs)

    def enqueue_many(self, items: Iterable[Mapping[str, object] | Item]) -> list[Enqueued]:
        """Put many jobs in, all or none: dicts of arguments, or items with options of their own.

        The answers are in order; a duplicate of a unique job names its holder. A generator is read
        as it is written. Raises: as ``enqueue``.
        """
        return enqueue_many(items, like=Item(handler=self.handler, arguments={}, options=self.options))

    def holder_id(self, *args: object, **kwargs: object) -> int | None:
        """The id of the job that holds the unique key which these arguments and options would take.

        Where the key names its arguments, no others need be given.
        Raises: ValueError when the job is not unique; InvalidJob naming an argument that is missing.
        """
        return find_holder(components(self.handler, self.options, args, kwargs))

    def cancel_holder(self, *args: object, **kwargs: object) -> int | None:
        """Cancel the job that ``holder_id`` names, queued, deferred or running; its id.

        None when no job holds the key, or one that has ended. ``operations.cancel`` with the id says
        also by whom and why. Raises: as ``holder_id``.
        """
        return operations.cancel_holder(components(self.handler, self.options, args, kwargs))

    def get(self, job_id: int) -> JobSnapshot:
        """The job with this id as it is now. Raises: JobNotFound when there is none of this kind."""
        return read_snapshot(self.handler, job_id)

    async def aget(self, job_id: int) -> JobSnapshot:
        """``get`` for async code."""
        return await sync_to_async(self.get, thread_sensitive=True)(job_id)


def _with_options(declared: Job[P, R], options: Options) -> Job[P, R]:
    return type(declared)(declared.handler, options)


class ContextJob(Job[P, R]):
    """A job whose function takes the JobContext first; who enqueues it does not pass one."""

    def __call__(  # type: ignore[override]  # only the direct call has the context
        self, context: JobContext, /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return cast("R", self.handler.function(context, *args, **kwargs))

    def using(self, **options: Unpack[UsingOptions]) -> ContextJob[P, R]:
        return cast("ContextJob[P, R]", super().using(**options))


AnyJob = Job[Any, Any]
