"""How a handler is called: its parameters, their types, and the arguments bound to them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec

from awa_django.codec import JSON, ArgsEncoder, decode_args, plain_json
from awa_django.errors import ConfigurationError, InvalidJob
from awa_django.typed import to_builtins

_UNTYPED = (Any, object, inspect.Parameter.empty)


class Signature:
    """The parameters of a handler, without the context it may take first.

    Arguments are stored by name, so ``*args`` and positional-only parameters are refused.
    ``**kwargs`` is accepted: each argument it catches is stored by its name, with its annotation.
    Annotations are resolved at first use, when all modules are loaded.

    Raises: ConfigurationError when the function cannot be a handler.
    """

    def __init__(self, function: Callable[..., object], *, kind: str, takes_context: bool) -> None:
        self.function = function
        self.kind = kind
        parameters = list(inspect.signature(function).parameters.values())
        if takes_context:
            if not parameters or parameters[0].kind not in (
                inspect.Parameter.POSITIONAL_ONLY,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
            ):
                raise ConfigurationError(
                    f"{kind!r} has takes_context=True, so its first parameter must be the context"
                )
            del parameters[0]
        for parameter in parameters:
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                raise ConfigurationError(
                    f"{kind!r} takes *{parameter.name}: "
                    "a job's arguments are stored by name, so name each one"
                )
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise ConfigurationError(
                    f"parameter {parameter.name!r} of {kind!r} is positional-only: "
                    "a job's arguments are stored by name, so remove the slash"
                )
        self._signature = inspect.Signature(parameters)
        self._named = {
            parameter.name: parameter
            for parameter in parameters
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
        self._positional = [
            parameter.name
            for parameter in parameters
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]
        self._required = {
            name for name, parameter in self._named.items() if parameter.default is inspect.Parameter.empty
        }
        self._rest = next((p for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD), None)

    def accepts(self, name: str) -> bool:
        """Whether an argument of this name can be passed."""
        return name in self._named or self._rest is not None

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The arguments by name; defaults are left to the run. Raises: InvalidJob when they do not fit."""
        # The usual call, without the price of inspect: no position is too many, and no name is given twice.
        named = {**dict(zip(self._positional, args, strict=False)), **kwargs} if args else dict(kwargs)
        if len(named) == len(args) + len(kwargs) and self._required <= named.keys() <= self._named.keys():
            return named
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError as exc:
            raise InvalidJob(f"{self.kind!r}: {exc}") from exc
        if self._rest is not None:
            bound.update(bound.pop(self._rest.name, {}))
        return bound

    def bind_some(
        self, args: Sequence[object], kwargs: Mapping[str, object], needed: Iterable[str]
    ) -> dict[str, object]:
        """As ``bind``, where of the required arguments only the ``needed`` ones must be given."""
        try:
            bound = self._signature.bind_partial(*args, **kwargs).arguments
        except TypeError as exc:
            raise InvalidJob(f"{self.kind!r}: {exc}") from exc
        if self._rest is not None:
            bound.update(bound.pop(self._rest.name, {}))
        for name in self._required.intersection(needed):
            if name not in bound:
                raise InvalidJob(f"{self.kind!r}: the argument {name!r} is missing")
        return bound

    def encode(self, arguments: Mapping[str, object], *, max_bytes: int) -> str:
        """The bound arguments as JSON text. Raises: InvalidJob naming the argument."""
        return self._encoder.encode(arguments, max_bytes=max_bytes)

    def decode(self, text: str | bytes) -> dict[str, object]:
        """Stored arguments, restored to their types and checked against the parameters.

        Raises: InvalidJob naming the argument that is missing, unknown or of another type.
        """
        arguments = decode_args(text, self._every_type, kind=self.kind)
        if self._required <= arguments.keys() <= self._named.keys():
            return arguments
        for name in arguments:
            if not self.accepts(name):
                raise InvalidJob(f"{self.kind!r} has no parameter {name!r}")
        for name in sorted(self._required - arguments.keys()):
            raise InvalidJob(f"{self.kind!r} needs the argument {name!r}, which the job does not have")
        return arguments

    @cached_property
    def encoded_defaults(self) -> dict[str, JSON]:
        """The default of each parameter that has one, as plain JSON; without those that JSON cannot hold."""
        encoded: dict[str, JSON] = {}
        for name, parameter in self._named.items():
            if parameter.default is not inspect.Parameter.empty:
                try:
                    encoded[name] = plain_json(to_builtins(parameter.default), name)
                except (InvalidJob, TypeError, RecursionError):
                    continue
        return encoded

    @cached_property
    def types(self) -> dict[str, Any]:
        """The annotation of each parameter that has a telling one.

        Raises: ConfigurationError naming a parameter whose annotation cannot be resolved.
        """
        return {name: hint for name, hint in self._hints.items() if name in self._named}

    def restore_result(self, text: str) -> object:
        """A stored result as the return annotation says; as plain JSON where there is none that fits."""
        plain = json.loads(text)
        try:
            hint = get_type_hints(inspect.unwrap(self.function), include_extras=True).get("return", Any)
            return plain if hint in _UNTYPED else msgspec.convert(plain, hint)
        except Exception:  # noqa: BLE001  (results are cleaned when they are written, so they may not fit)
            return plain

    @cached_property
    def _encoder(self) -> ArgsEncoder:
        types = {name: self._hints.get(name, Any) for name in self._named}
        return ArgsEncoder(self.kind, types, self._hints.get(self._rest.name, Any) if self._rest else Any)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        namespace = getattr(inspect.unwrap(self.function), "__globals__", {})
        hints: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            try:
                hint = get_type_hints(
                    SimpleNamespace(__annotations__={parameter.name: parameter.annotation}),
                    globalns=namespace,
                    include_extras=True,
                )[parameter.name]
            except Exception as exc:
                raise ConfigurationError(
                    f"the annotation of parameter {parameter.name!r} of {self.kind!r} "
                    f"cannot be resolved ({exc}): "
                    "import its type outside of TYPE_CHECKING"
                ) from exc
            if hint not in _UNTYPED:
                hints[parameter.name] = hint
        return hints

    @cached_property
    def _every_type(self) -> Mapping[str, Any]:
        """``types``, which with ``**kwargs: T`` answers ``T`` for every other name."""
        if self._rest is None or self._rest.name not in self._hints:
            return self.types
        return _WithRest(self.types, set(self._named), self._hints[self._rest.name])


class _WithRest(dict[str, Any]):
    """Types by name, where each name that is not a parameter has the annotation of ``**kwargs``."""

    def __init__(self, types: Mapping[str, Any], named: set[str], rest: object) -> None:
        super().__init__(types)
        self._named = named
        self._rest = rest

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name not in self._named

    def __missing__(self, name: str) -> object:
        return self._rest
