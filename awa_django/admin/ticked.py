"""An action on the jobs that were ticked: asked about on a page where it matters, done at once.

The ids are those that were ticked, not those that still match the page's filter: a job that has
moved on since is reported, not silently left out. All that match is the affair of ``matching``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from awa_django.admin.base import ModelAdmin, log, url_of
from awa_django.admin.confirming import ask
from awa_django.admin.job_actions import JobAction
from awa_django.admin.way_back import from_list
from awa_django.admin.words import english, grouped, refusal
from awa_django.conf import get_settings
from awa_django.models import HotJob, Job
from awa_django.operations import LARGEST_ID, Change, OperationResult, Refusal
from awa_django.operations.change import BULK_KIND
from awa_django.operations.matching import apply_to_matching
from awa_django.states import TERMINAL_STATES, UNFINISHED_STATES, JobState
from awa_django.storage.operate import Match, locate

# Ticked at once; a page has 100 rows.
LARGEST_SELECTION = 1000
REASONS_SHOWN = 10
# What the page that asks whether to delete says of the jobs: which of them have ended.
ENDED_NAME = "ended_jobs"
LONGEST_SHOWN_SELECTION = 20


def perform(
    page: ModelAdmin, request: HttpRequest, action: JobAction, form: forms.Form | None, *, confirmed: bool
) -> HttpResponse:
    """Do the action, after its page of questions if it has one; then back to where it came from."""
    ids = _selected_ids(request)
    if not 0 < len(ids) <= LARGEST_SELECTION:
        return refuse_selection(page, request)
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
        refused = _not_to_resume(request, ids) if action.operation == "retry" else {}
        result = _apply(request, change, sorted(set(ids).difference(refused))).beside(refused.values())
        _log(request, action, result, {} if form is None else form.cleaned_data)
    _report(page, request, action, result)
    if "from_detail" in request.POST and not action.deletes:
        return HttpResponseRedirect(_page_of(page, request, ids[0]))
    return HttpResponseRedirect(request.get_full_path())


def _not_to_resume(request: HttpRequest, ids: list[int]) -> dict[int, Refusal]:
    """Those of the jobs that do to many what this user may not do to one.

    Somebody stopped them, or they failed: whoever may retry jobs may not on that account have others
    deleted.
    """
    refused = {}
    possible = [job_id for job_id in ids if job_id <= LARGEST_ID]
    jobs = HotJob.objects.filter(pk__in=possible, kind=BULK_KIND).values_list("pk", "state", "args")
    for job_id, state, args in jobs:
        try:
            permission = msgspec.convert(args["change"], Change).permission
        except (KeyError, TypeError, msgspec.ValidationError):  # whatever somebody else wrote
            permission = ""
        if not permission or not request.user.has_perm(permission):
            reason = "does to many what you may not do to one"
            refused[job_id] = Refusal(job_id, JobState(state), reason)
    return refused


def _apply(request: HttpRequest, change: Change, ids: list[int]) -> OperationResult:
    """Do it; but what had ended when the page asked whether to delete it must still have, and vice versa.

    Who deletes a failed job does not mean the one that a colleague has retried since, nor who deletes a
    waiting one the errors of how it went.
    """
    apply = partial(change.apply, by=str(request.user.get_username()))
    seen = request.POST.get(ENDED_NAME)
    if seen is None:
        return apply(ids)
    ended = {int(value) for value in seen.split() if is_id(value)}
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
    title = ngettext("%(action)s: %(count)s job", "%(action)s: %(count)s jobs", len(ids))
    from_detail = "from_detail" in request.POST
    return ask(
        page,
        request,
        action,
        form,
        template="admin/awa/confirm_ticked.html",
        title=title % {"action": action.label, "count": grouped(len(ids))},
        ids=ids,
        shown_ids=ids[:LONGEST_SHOWN_SELECTION],
        hidden_count=max(0, len(ids) - LONGEST_SHOWN_SELECTION),
        ended_name=ENDED_NAME,
        ended=_ended(ids) if action.deletes else None,
        from_detail=from_detail,
        back_url=_page_of(page, request, ids[0]) if from_detail else request.get_full_path(),
    )


def _ended(ids: list[int]) -> str:
    """Which of the jobs have ended, for the page to send back."""
    found = locate(connections[get_settings().database], [job_id for job_id in ids if job_id <= LARGEST_ID])
    return " ".join(str(job.id) for job in found.values() if job.state in TERMINAL_STATES)


def _page_of(page: ModelAdmin, request: HttpRequest, job_id: int) -> str:
    return from_list(url_of(page.admin_site.name, page.model, "change", job_id), request)


def _selected_ids(request: HttpRequest) -> list[int]:
    return sorted({int(value) for value in request.POST.getlist(ACTION_CHECKBOX_NAME) if is_id(value)})


def is_id(value: str) -> bool:
    """Whether the text is a number that may be an id."""
    return value.isascii() and value.isdecimal() and len(value) < 20


def refuse_selection(page: ModelAdmin, request: HttpRequest) -> HttpResponse:
    """Back to the list, with word that this cannot be what was ticked."""
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
