"""Filters whose choices come from the catalogue: none asks a big table for its distinct values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db import connections
from django.db.models import F, Func, QuerySet, TextField
from django.http import HttpRequest

from awa_django.admin.base import CHOICES_CAP, STATE_NAMES
from awa_django.conf import get_settings
from awa_django.models import DeferredJob, HotJob, JobKind
from awa_django.states import DEFERRED_STATES, HOT_STATES, JobState
from awa_django.storage.queues import known_queues


class _NameFilter(admin.SimpleListFilter, ABC):
    """A filter on one column; a value that is not among the choices is a name all the same."""

    column: str

    @abstractmethod
    def names(self) -> Iterable[str]:
        """The choices."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = list(self.names())
        chosen = self.value()
        if chosen and chosen not in names:
            names.append(chosen)
        return [(name, name) for name in names]

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        if not chosen:
            return queryset
        if "\x00" in chosen:  # PostgreSQL cannot even be asked for it
            return queryset.none()
        return queryset.filter(**{self.column: chosen})


class QueueFilter(_NameFilter):
    title = "queue"
    parameter_name = column = "queue"

    def names(self) -> Iterable[str]:
        return known_queues(connections[get_settings().database], limit=CHOICES_CAP)


class KindFilter(_NameFilter):
    title = "kind"
    parameter_name = column = "kind"

    def names(self) -> Iterable[str]:
        return JobKind.objects.order_by("kind").values_list("kind", flat=True)[:CHOICES_CAP]


class EndFilter(admin.SimpleListFilter):
    """How the last attempt of an ended job went, by its newest error entry.

    Each way has one state, whose jobs ``jobs_hot_attention`` holds in the order of the list: completed
    ones are not looked at.
    """

    title = "how it ended"
    parameter_name = "ended"
    states = {
        "superseded": JobState.CANCELLED,
        "discarded": JobState.CANCELLED,
        "expired": JobState.FAILED,
        "timed_out": JobState.FAILED,
        "rescued": JobState.FAILED,
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(way, f"{state}: {way.replace('_', ' ')}") for way, state in self.states.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        way = self.value()
        if not way:
            return queryset
        if way not in self.states:
            return queryset.none()
        last = Func(
            F("errors"),
            template="(%(expressions)s)[cardinality(%(expressions)s)] ->> 'outcome'",
            output_field=TextField(),
        )
        ended: QuerySet[Any] = queryset.filter(state=self.states[way]).alias(last_outcome=last)
        return ended.filter(last_outcome=way)


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        states: frozenset[JobState] = frozenset(JobState)
        if model_admin.model is HotJob:
            states = HOT_STATES
        elif model_admin.model is DeferredJob:
            states = DEFERRED_STATES
        return [(state.value, state.value.replace("_", " ")) for state in JobState if state in states]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        if not chosen:
            return queryset
        return queryset.filter(state=chosen) if chosen in STATE_NAMES else queryset.none()
