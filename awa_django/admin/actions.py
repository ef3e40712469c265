"""The actions on jobs in the lists: who may do them, and whether to what is ticked or to all that match."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from awa_django.admin import matching, ticked
from awa_django.admin.arguments import ArgumentsMixin
from awa_django.admin.base import ModelAdmin
from awa_django.admin.job_actions import JOB_ACTIONS, JobAction


class JobActionsMixin(ArgumentsMixin):
    """Gives a page of jobs the actions it names in ``job_actions``, as far as the user may do them."""

    job_actions: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.actions = [_as_admin_action(JOB_ACTIONS[name]) for name in cls.job_actions]
        for name in cls.job_actions:  # where Django's own check of an action's permission looks
            setattr(cls, f"has_{name}_permission", partialmethod(_page_allows, action=JOB_ACTIONS[name]))

    def response_action(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse | None:
        """As Django's, which fails on an id that is no number."""
        if not all(map(ticked.is_id, request.POST.getlist(ACTION_CHECKBOX_NAME))):
            return ticked.refuse_selection(self, request)
        return super().response_action(request, *args, **kwargs)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """As it is; kept for an action on all that match, which says how many there are."""
        changelist = super().get_changelist_instance(request)
        matching.remember(request, changelist)
        return changelist

    def allowed_job_actions(self, request: HttpRequest) -> list[JobAction]:
        actions = (JOB_ACTIONS[name] for name in self.job_actions)
        return [action for action in actions if _may(request, action)]


def _as_admin_action(action: JobAction) -> Callable[..., HttpResponse]:
    def function(page: ModelAdmin, request: HttpRequest, _: object) -> HttpResponse:
        return _perform(page, request, action)

    function.__name__ = action.name
    decorate = admin.action(description=action.selected, permissions=[action.name])
    decorated: Callable[..., HttpResponse] = decorate(function)
    return decorated


def _page_allows(_: ModelAdmin, request: HttpRequest, action: JobAction) -> bool:
    return _may(request, action)


def _may(request: HttpRequest, action: JobAction) -> bool:
    return bool(request.user.has_perm(action.permission))


def _perform(page: ModelAdmin, request: HttpRequest, action: JobAction) -> HttpResponse:
    """Do the action to what is ticked, or have it done to all that match."""
    if not _may(request, action):
        raise PermissionDenied
    confirmed = "confirmed" in request.POST
    form = None if action.form is None else action.form(request.POST if confirmed else None)
    if request.POST.get("select_across") == "1":
        return matching.perform(page, request, action, form, confirmed=confirmed)
    return ticked.perform(page, request, action, form, confirmed=confirmed)
