"""The actions on jobs: each with its permission, each calling one of awa_django.operations.

The ids are those that were ticked, not those that still match the page's filter: a job that has
moved on since is reported, not silently left out. All that match is the affair of ``matching``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, partialmethod
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l
from django.utils.translation import ngettext

from awa_django.admin import matching
from awa_django.admin.arguments import ArgumentsMixin
from awa_django.admin.base import ModelAdmin, log
from awa_django.admin.words import Words, english, grouped, refusal
from awa_django.conf import get_settings
from awa_django.models import Job
from awa_django.operations import (
    HIGHEST_PRIORITY,
    LARGEST_ID,
    LONGEST_NAME,
    LOWEST_PRIORITY,
    Change,
    OperationResult,
)
from awa_django.operations.change import Operation
from awa_django.operations.matching import apply_to_matching
from awa_django.states import TERMINAL_STATES, UNFINISHED_STATES, JobState
from awa_django.storage.operate import Match, locate

# Ticked at once; a page has 100 rows.
LARGEST_SELECTION = 1000
REASONS_SHOWN = 10
# What the page that asks whether to delete says of the jobs: which of them have ended.
ENDED_NAME = "ended_jobs"
LONGEST_SHOWN_SELECTION = 20


class PriorityForm(forms.Form):
    priority = forms.IntegerField(
        label=_l("Priority"),
        min_value=LOWEST_PRIORITY,
        max_value=HIGHEST_PRIORITY,
        initial=2,
        help_text=_l("1 runs soonest, 4 last; 2 is usual."),
    )


class DateAndTime(AdminSplitDateTime):
    """Its two inputs have names, which Django 5.2 does not give them."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        for part, name in zip(self.widgets, (_l("Date"), _l("Time")), strict=True):
            part.attrs["aria-label"] = name


class RescheduleForm(forms.Form):
    run_at = forms.SplitDateTimeField(label=_l("Run at"), widget=DateAndTime)


class QueueForm(forms.Form):
    queue = forms.CharField(label=_l("Queue"), max_length=LONGEST_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAction:
    """One action: what it is called, who may do it, what it asks first and what it does."""

    name: str
    label: Words
    selected: Words
    """What it is called in the list, where it is done to what is ticked."""
    operation: Operation
    effect: Words
    """What happens to which jobs, for the page that asks."""
    asks: bool = True
    """On a page of its own first; all that match are always asked about."""
    form: type[forms.Form] | None = None
    deletes: bool = False

    @property
    def permission(self) -> str:
        """The name that ``has_perm`` takes."""
        return Change(operation=self.operation).permission

    @property
    def states(self) -> frozenset[JobState]:
        """Of a job for which its page offers it; the operation itself decides."""
        return Change(operation=self.operation).states

    def change(self, form: forms.Form | None) -> Change:
        """What was asked for. Raises: ValueError for a value that only the operation knows to be wrong."""
        change = Change(operation=self.operation, **({} if form is None else form.cleaned_data))
        change.check()
        return change


JOB_ACTIONS = {
    action.name: action
    for action in (
        JobAction(
            name="retry_jobs",
            label=_l("Retry"),
            selected=_l("Retry selected jobs"),
            operation="retry",
            effect=_l(
                "Jobs that have failed or were cancelled become available, with all their attempts again."
            ),
            asks=False,
        ),
        JobAction(
            name="run_jobs_now",
            label=_l("Run now"),
            selected=_l("Run selected jobs now"),
            operation="run_now",
            effect=_l("Jobs that wait for their time or for a retry become available at once."),
            asks=False,
        ),
        JobAction(
            name="cancel_jobs",
            label=_l("Cancel"),
            selected=_l("Cancel selected jobs"),
            operation="cancel",
            effect=_l(
                "Jobs that have not ended are cancelled. A running handler is told within a second, and "
                "what it returns is dropped."
            ),
        ),
        JobAction(
            name="set_priority_of_jobs",
            label=_l("Set priority"),
            selected=_l("Set priority of selected jobs"),
            operation="set_priority",
            effect=_l("The priority of jobs that have not ended is set."),
            form=PriorityForm,
        ),
        JobAction(
            name="reschedule_jobs",
            label=_l("Reschedule"),
            selected=_l("Reschedule selected jobs"),
            operation="reschedule",
            effect=_l("Jobs that have not started become due at another time."),
            form=RescheduleForm,
        ),
        JobAction(
            name="move_jobs",
            label=_l("Move to another queue"),
            selected=_l("Move selected jobs to another queue"),
            operation="move_queue",
            effect=_l("Jobs that have not started and have no unique key go to another queue."),
            form=QueueForm,
        ),
        JobAction(
            name="delete_jobs",
            label=_l("Delete"),
            selected=_l("Delete selected jobs"),
            operation="delete",
            effect=_l("Jobs that do not run are deleted for good, with their errors and results."),
            deletes=True,
        ),
    )
}


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
        if not all(map(_is_id, request.POST.getlist(ACTION_CHECKBOX_NAME))):
            return _refuse_selection(self, request)
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
    """Do the action, after its page of questions if it has one; then back to where it came from."""
    if not _may(request, action):
        raise PermissionDenied
    confirmed = "confirmed" in request.POST
    form = None if action.form is None else action.form(request.POST if confirmed else None)
    if request.POST.get("select_across") == "1":
        return matching.perform(page, request, action, form, confirmed=confirmed)
    ids = _selected_ids(request)
    if not 0 < len(ids) <= LARGEST_SELECTION:
        return _refuse_selection(page, request)
    if action.asks and (not confirmed or (form is not None and not form.is_valid())):
        return _ask(page, request, action, ids, form)
    try:
        change = action.change(form)
    except ValueError as exc:
        if form is None:
            raise
        form.add_error(None, str(exc))
        return _ask(page, request, action, ids, form)
    with transaction.atomic(using=get_settings().database):
        refused = matching.not_to_resume(request, ids) if action.operation == "retry" else {}
        result = _apply(request, change, sorted(set(ids).difference(refused))).beside(refused.values())
        _log(request, action, result, {} if form is None else form.cleaned_data)
    _report(page, request, action, result)
    if "from_detail" in request.POST and not action.deletes:
        return HttpResponseRedirect(_url(page, "change", ids[0]))
    return HttpResponseRedirect(request.get_full_path())


def _apply(request: HttpRequest, change: Change, ids: list[int]) -> OperationResult:
    """Do it; but what had ended when the page asked whether to delete it must still have, and vice versa.

    Who deletes a failed job does not mean the one that a colleague has retried since, nor who deletes a
    waiting one the errors of how it went.
    """
    apply = partial(change.apply, by=str(request.user.get_username()))
    seen = request.POST.get(ENDED_NAME)
    if seen is None:
        return apply(ids)
    ended = {int(value) for value in seen.split() if _is_id(value)}
    done = apply([job_id for job_id in ids if job_id > LARGEST_ID])  # which no job has
    for states, some in (
        (TERMINAL_STATES, ended.intersection(ids)),
        (UNFINISHED_STATES, set(ids).difference(ended)),
    ):
        match = Match(LARGEST_ID, states=sorted(states & change.states))
        possible = sorted(job_id for job_id in some if job_id <= LARGEST_ID)
        result = apply_to_matching(
            apply, match, possible, using=get_settings().database, explain=lambda job: f"is {job.state}"
        )
        changed = tuple(sorted((*done.changed, *result.changed)))
        done = OperationResult(changed, done.refused).beside(result.refused)
    return done


def _ask(
    page: ModelAdmin, request: HttpRequest, action: JobAction, ids: list[int], form: forms.Form | None
) -> HttpResponse:
    request.current_app = page.admin_site.name
    context = {
        **page.admin_site.each_context(request),
        "title": ngettext("%(action)s: %(count)s job", "%(action)s: %(count)s jobs", len(ids))
        % {"action": action.label, "count": grouped(len(ids))},
        "opts": page.opts,
        "media": page.media + (form.media if form is not None else forms.Media()),
        "action": action,
        "form": form,
        "ids": ids,
        "shown_ids": ids[:LONGEST_SHOWN_SELECTION],
        "hidden_count": max(0, len(ids) - LONGEST_SHOWN_SELECTION),
        "checkbox_name": ACTION_CHECKBOX_NAME,
        "ended_name": ENDED_NAME,
        "ended": _ended(ids) if action.deletes else None,
        "from_detail": "from_detail" in request.POST,
        "list_url": _url(page, "changelist"),
        "action_url": request.get_full_path(),
        "back_url": _url(page, "change", ids[0])
        if "from_detail" in request.POST
        else request.get_full_path(),
    }
    return TemplateResponse(request, "admin/awa/confirm_action.html", context)


def _ended(ids: list[int]) -> str:
    """Which of the jobs have ended, for the page to send back."""
    found = locate(connections[get_settings().database], [job_id for job_id in ids if job_id <= LARGEST_ID])
    return " ".join(str(job.id) for job in found.values() if job.state in TERMINAL_STATES)


def _url(page: ModelAdmin, view: str, *args: int) -> str:
    name = f"admin:{page.opts.app_label}_{page.opts.model_name}_{view}"
    return reverse(name, args=args, current_app=page.admin_site.name)


def _selected_ids(request: HttpRequest) -> list[int]:
    return sorted({int(value) for value in request.POST.getlist(ACTION_CHECKBOX_NAME) if _is_id(value)})


def _is_id(value: str) -> bool:
    return value.isascii() and value.isdecimal() and len(value) < 20


def _refuse_selection(page: ModelAdmin, request: HttpRequest) -> HttpResponse:
    text = _("Select between 1 and %(most)s jobs.") % {"most": grouped(LARGEST_SELECTION)}
    page.message_user(request, text, messages.WARNING)
    return HttpResponseRedirect(request.get_full_path())


def _log(request: HttpRequest, action: JobAction, result: OperationResult, data: dict[str, Any]) -> None:
    """One record for each job: who did what with which values, and what came of it."""
    with english():
        what = f"{action.label}" + "".join(f", {name} {value}" for name, value in data.items())
    changed = DELETION if action.deletes else CHANGE
    entries = [(job_id, changed, "changed") for job_id in result.changed]
    entries += [(job.job_id, CHANGE, f"left alone: {job.reason}") for job in result.refused]
    log(request, Job, ((str(i), f"job {i}", flag, f"{what}: {outcome}.") for i, flag, outcome in entries))


def _report(page: ModelAdmin, request: HttpRequest, action: JobAction, result: OperationResult) -> None:
    count = len(result.changed)
    values = {"action": action.label, "count": grouped(count)}
    if not result.refused:
        text = ngettext("%(action)s: %(count)s changed.", "%(action)s: %(count)s changed.", count)
        page.message_user(request, text % values, messages.SUCCESS)
        return
    reasons = [
        _("job %(id)s %(reason)s") % {"id": job.job_id, "reason": refusal(job)}
        for job in result.refused[:REASONS_SHOWN]
    ]
    if len(result.refused) > REASONS_SHOWN:
        reasons.append(_("and %(count)s more") % {"count": grouped(len(result.refused) - REASONS_SHOWN)})
    text = ngettext(
        "%(action)s: %(count)s changed, %(left)s had moved on or could not be: %(reasons)s.",
        "%(action)s: %(count)s changed, %(left)s had moved on or could not be: %(reasons)s.",
        count,
    )
    values |= {"left": grouped(len(result.refused)), "reasons": "; ".join(reasons)}
    page.message_user(request, text % values, messages.WARNING)
