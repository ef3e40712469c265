"""Filters whose choices come from the catalogue: none asks a big table for its distinct values.

Each says which value it wants in which column: the list then knows what an index serves, see ``reach``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db import connections
from django.db.models import BooleanField, F, Func, QuerySet, TextField
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from awa_django.admin.base import CHOICES_CAP, STATE_NAMES
from awa_django.admin.words import outcome_name, state_name
from awa_django.conf import get_settings
from awa_django.models import DeferredJob, HotJob
from awa_django.states import DEFERRED_STATES, HOT_STATES, JobState
from awa_django.storage.queues import KnownNames, known_names
from awa_django.storage.why import SAME_MOMENT


def names_for(request: HttpRequest) -> KnownNames:
    """The choices of all filters, and the kinds that the search means: one statement a request."""
    names: KnownNames | None = getattr(request, "_awa_names", None)
    if names is None:
        term = request.GET.get(SEARCH_VAR, "").strip()
        connection = connections[get_settings().database]
        names = known_names(connection, limit=CHOICES_CAP, search="" if "\x00" in term else term)
        request._awa_names = names  # type: ignore[attr-defined]
    return names


class JobFilter(admin.SimpleListFilter, ABC):
    """A filter that wants one value in one column, and perhaps more."""

    narrows = False
    """Whether it wants more than ``equals`` says."""

    @abstractmethod
    def equals(self) -> tuple[str, str] | None:
        """The column and its value; None where nothing can match. Asked only where a value is chosen."""

    def narrow(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """What it wants beside that."""
        return queryset

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        wanted = self.equals()
        return queryset.none() if wanted is None else self.narrow(queryset.filter(**dict([wanted])))


class _NameFilter(JobFilter):
    """A filter on one column; a value that is not among the choices is a name all the same."""

    column: str

    @abstractmethod
    def names(self, request: HttpRequest) -> Iterable[str]:
        """The choices."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = list(self.names(request))
        chosen = self.value()
        if chosen and chosen not in names:
            names.append(chosen)
        return [(name, name) for name in names]

    def has_output(self) -> bool:
        return True

    def equals(self) -> tuple[str, str] | None:
        chosen = self.value() or ""
        return None if "\x00" in chosen else (self.column, chosen)  # PostgreSQL cannot even be asked for it


class QueueFilter(_NameFilter):
    title = _("queue")
    parameter_name = column = "queue"

    def names(self, request: HttpRequest) -> Iterable[str]:
        return names_for(request).queues


class KindFilter(_NameFilter):
    title = _("kind")
    parameter_name = column = "kind"

    def names(self, request: HttpRequest) -> Iterable[str]:
        return names_for(request).kinds


class EndFilter(JobFilter):
    """How the last attempt of an ended job went, by its newest error entry, if that tells of this end.

    One that was retried and then cancelled while it waited has entries of earlier ends alone. As in
    matching.sql.

    Each way has one state, whose jobs ``jobs_hot_attention`` holds in the order of the list: completed
    ones are not looked at.
    """

    title = _("how it ended")
    parameter_name = "ended"
    narrows = True
    states = {
        "superseded": JobState.CANCELLED,
        "discarded": JobState.CANCELLED,
        "expired": JobState.FAILED,
        "timed_out": JobState.FAILED,
        "rescued": JobState.FAILED,
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(way, f"{state_name(state)}: {outcome_name(way)}") for way, state in self.states.items()]

    def equals(self) -> tuple[str, str] | None:
        state = self.states.get(self.value() or "")
        return None if state is None else ("state", state.value)

    def narrow(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        newest = "(%(expressions)s)[cardinality(%(expressions)s)]"
        last = Func(F("errors"), template=f"{newest} ->> 'outcome'", output_field=TextField())
        moment = Func(
            F("finalized_at") - SAME_MOMENT,
            F("finalized_at") + SAME_MOMENT,
            template="jsonb_build_object('since', %(expressions)s)",
            arg_joiner=", 'until', ",
        )
        is_of_another = Func(
            Func(F("errors"), template=newest),
            moment,
            template="coalesce(jsonb_path_exists_tz(%(expressions)s, true), false)",
            arg_joiner=", '$.at.datetime() ? (@ < $since.datetime() || @ > $until.datetime())', ",
            output_field=BooleanField(),
        )
        ended: QuerySet[Any] = queryset.alias(last_outcome=last, is_of_another=is_of_another).filter(
            last_outcome=self.value(), is_of_another=False
        )
        return ended


class StateFilter(JobFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        states: frozenset[JobState] = frozenset(JobState)
        if model_admin.model is HotJob:
            states = HOT_STATES
        elif model_admin.model is DeferredJob:
            states = DEFERRED_STATES
        return [(state.value, state_name(state)) for state in JobState if state in states]

    def equals(self) -> tuple[str, str] | None:
        chosen = self.value() or ""
        return ("state", chosen) if chosen in STATE_NAMES else None
