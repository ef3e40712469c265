"""TaskHandler: a task as the worker knows it. Its jobs store ``{"args": [...], "kwargs": {...}}``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, cast

from asgiref.sync import sync_to_async
from django.utils.module_loading import import_string

from awa_django.binding import Signature
from awa_django.codec import JSON, ArgsEncoder, decode_args, plain_json
from awa_django.context import JobContext
from awa_django.errors import InvalidJob, TerminalError
from awa_django.handler import Handler
from awa_django.outcomes import Outcome as Asked
from awa_django.storage.rows import Completion, Ending
from awa_django.tasks_backend import results
from awa_django.tasks_backend.framework import (
    TaskContext,
    TaskResult,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from awa_django.tasks_backend.task import AnyTask
from awa_django.typed import to_builtins


class UnstorableResult(TerminalError, TypeError):
    """What the task returned is no JSON. Another attempt would do its work again for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaTaskContext(TaskContext):  # type: ignore[misc, type-arg]  # frozen, whatever the stubs say
    """The framework's context, and the job's: ``context.job.progress(50)``, ``context.job.is_cancelled``."""

    job: JobContext


class TaskSignature(Signature):
    """Arguments by the framework's rule: as they were passed, in JSON; annotations are not looked at.

    They are bound to names only for a unique key, so ``*args`` and positional-only parameters are fine.
    """

    def __init__(self, function: Callable[..., object], *, kind: str, takes_context: bool) -> None:
        self.function = function
        self.kind = kind
        self._parameters = list(inspect.signature(function).parameters.values())[int(takes_context) :]

    def accepts(self, name: str) -> bool:
        return any(each.name == name or each.kind is each.VAR_KEYWORD for each in self._parameters)

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Raises: TypeError or ValueError for what is no JSON, as the framework's own backends do."""
        return {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}

    def encode(self, arguments: Mapping[str, object], *, max_bytes: int) -> str:
        return ArgsEncoder(self.kind, {}).encode(arguments, max_bytes=max_bytes)

    def decode(self, text: str | bytes) -> dict[str, object]:
        stored = decode_args(text, {}, kind=self.kind)
        args, kwargs = stored.pop("args", []), stored.pop("kwargs", {})
        if stored or not isinstance(args, list) or not isinstance(kwargs, dict):
            raise InvalidJob(
                f'the arguments of the task {self.kind!r} must be {{"args": [], "kwargs": {{}}}}'
            )
        return {"args": args, "kwargs": kwargs}

    def by_name(self, text: str) -> dict[str, JSON]:
        """Stored arguments by the names of their parameters, with the defaults of the others."""
        stored = self.decode(text)
        args, kwargs = cast("list[Any]", stored["args"]), cast("dict[str, Any]", stored["kwargs"])
        try:
            bound = inspect.Signature(self._parameters).bind(*args, **kwargs)
        except TypeError as exc:
            raise InvalidJob(f"{self.kind!r}: {exc}") from exc
        named = dict(self.encoded_defaults)
        for name, value in bound.arguments.items():
            if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                named.update(value)
            else:
                named[name] = list(value) if isinstance(value, tuple) else value
        return named

    @cached_property
    def encoded_defaults(self) -> dict[str, JSON]:
        encoded: dict[str, JSON] = {}
        for each in self._parameters:
            if each.default is not each.empty:
                try:
                    encoded[each.name] = plain_json(to_builtins(each.default), each.name)
                except (InvalidJob, TypeError, RecursionError):
                    continue
        return encoded

    @cached_property
    def types(self) -> dict[str, Any]:
        return {}

    def restore_result(self, text: str) -> object:
        return json.loads(text)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskHandler(Handler):
    """The handler of a task: calls it as the framework does, and sends the framework's signals."""

    hears_of_end: ClassVar[bool] = True
    task: AnyTask = field(repr=False)

    @property
    def sender(self) -> object:
        return self.task

    def key_args(self, args_json: str) -> dict[str, JSON]:
        return cast("TaskSignature", self.signature).by_name(args_json)

    def call(self, context: object | None, arguments: Mapping[str, object]) -> object:
        assert isinstance(context, JobContext)
        if self.is_async:
            return self._call_async(context, arguments)
        return _storable(self._start(context, arguments)())

    async def _call_async(self, context: JobContext, arguments: Mapping[str, object]) -> object:
        start = await sync_to_async(self._start)(context, arguments)
        return _storable(await start())

    def _start(self, context: JobContext, arguments: Mapping[str, object]) -> Callable[[], Any]:
        """Tell that it starts; the call to make then."""
        result = results.of_run(self.task, context, arguments)
        task_started.send_robust(sender=self._sender(result), task_result=result)
        first = [AwaTaskContext(task_result=result, job=context)] if self.task.takes_context else []
        args, kwargs = cast("list[Any]", arguments["args"]), cast("dict[str, Any]", arguments["kwargs"])
        return lambda: self.function(*first, *args, **kwargs)

    def ended(self, context: object | None, arguments: Mapping[str, object] | None, outcome: object) -> None:
        """Send ``task_finished`` when the task is finished: not before a retry."""
        if isinstance(context, JobContext) and isinstance(outcome, (Completion, Ending)):
            result = results.of_end(self.task, context, arguments or {"args": [], "kwargs": {}}, outcome)
            task_finished.send_robust(sender=self._sender(result), task_result=result)

    def _sender(self, result: TaskResult[Any, Any]) -> type:
        # Its class alone: in the context of a run, a backend would have to be made for that.
        return cast("type", import_string(task_backends.settings[result.backend]["BACKEND"]))


def _storable(value: object) -> object:
    if isinstance(value, Asked):
        return value
    try:
        return normalize_json(value)
    except (TypeError, ValueError) as exc:
        raise UnstorableResult(f"the task's result cannot be stored: {exc}") from exc
