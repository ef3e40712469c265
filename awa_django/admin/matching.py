"""An action on all jobs that match the filters of a list: asked about on a page, done by a job.

What is confirmed is what the page showed: its selection comes back signed, with the highest id there was.
So what is enqueued later is left, and a form that is sent twice starts one job.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE
from django.core import signing
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from awa_django.admin import search
from awa_django.admin.base import ModelAdmin, log, url_of
from awa_django.admin.confirming import ask
from awa_django.admin.filters import EndFilter, JobFilter, names_for
from awa_django.admin.job_actions import JobAction
from awa_django.admin.words import english, grouped, outcome_name, state_name
from awa_django.bulk_operation import bulk_operation
from awa_django.conf import get_settings
from awa_django.models import DeferredJob, HotJob, Job
from awa_django.operations.change import BULK_KEPT_FOR, BULK_KIND, Change
from awa_django.operations.walk import Selection
from awa_django.storage.operate import Outlook, Table, outlook

# How long a page may wait for its confirmation: it says how many there were when it was opened.
LONGEST = BULK_KEPT_FOR
_TABLES: dict[type[Any], Table] = {HotJob: "hot", DeferredJob: "deferred"}
_COLUMNS = frozenset({"state", "queue", "kind"})


class CannotSelect(Exception):
    """The list has something that an operation on all that match cannot express. The text is for the user."""


def remember(request: HttpRequest, changelist: Any) -> None:
    """Keep the list that was read for this request."""
    request._awa_changelist = changelist  # type: ignore[attr-defined]


def perform(
    page: ModelAdmin, request: HttpRequest, action: JobAction, form: forms.Form | None, *, confirmed: bool
) -> HttpResponse:
    """Ask, or start the job and go to its page."""
    if confirmed:
        try:
            selection, confirmation = _read(request.POST.get("selection", ""), _salt(request, action))
        except (signing.BadSignature, msgspec.ValidationError):
            message = _("This page was too old, so nothing was done: here it is anew.")
            page.message_user(request, message, messages.WARNING)
        else:
            if form is None or form.is_valid():
                try:
                    return _start(page, request, action, form, selection, confirmation)
                except ValueError as exc:
                    if form is None:
                        raise
                    form.add_error(None, str(exc))
    changelist = request._awa_changelist  # type: ignore[attr-defined]
    settings = get_settings()
    ahead = outlook(
        connections[settings.database], queue=settings.bulk_queue, seen_within=settings.stale_after
    )
    try:
        selection = select(page, request, changelist, ahead)
        if action.operation == "retry" and selection.kind == BULK_KIND:
            raise CannotSelect(_("What was started for all that match is resumed one by one: tick it."))
        if not selection.states(Change(operation=action.operation)):
            text = _("%(action)s takes no job that is %(state)s.")
            raise CannotSelect(text % {"action": action.label, "state": state_name(selection.state or "")})
    except CannotSelect as exc:
        page.message_user(request, str(exc), messages.WARNING)
        return HttpResponseRedirect(request.get_full_path())
    return _ask(page, request, action, form, selection, changelist, ahead)


def select(page: ModelAdmin, request: HttpRequest, changelist: Any, ahead: Outlook) -> Selection:
    """What the list shows, all pages of it, as it is now. Raises: CannotSelect."""
    wanted: dict[str, Any] = {}
    for spec in changelist.filter_specs:
        chosen = spec.value() if hasattr(spec, "value") else None
        if not chosen:
            continue
        pair = spec.equals() if isinstance(spec, JobFilter) else None
        is_known = isinstance(spec, JobFilter) and (isinstance(spec, EndFilter) or not spec.narrows)
        if not is_known or (pair is not None and pair[0] not in _COLUMNS):
            text = _('All that match the filter "%(filter)s" cannot be acted on at once: tick jobs instead.')
            raise CannotSelect(text % {"filter": spec.title})
        if pair is None or wanted.setdefault(*pair) != pair[1]:
            raise CannotSelect(_("No job can match these filters."))
        if isinstance(spec, EndFilter):
            wanted["ended"] = chosen
    if changelist.query.strip():
        _add_search(wanted, changelist.query.strip(), request)
    if not wanted:
        raise CannotSelect(_("Choose a filter first: an action on all jobs there are is not offered."))
    table = _TABLES.get(page.model)
    return Selection(highest_id=ahead.highest_id, ended_by=ahead.now, table=table, **wanted)


def _add_search(wanted: dict[str, Any], term: str, request: HttpRequest) -> None:
    word, colon, rest = term.partition(":")
    if colon and word == "tag" and rest.strip() and "\x00" not in rest:
        wanted["tags"] = (rest.strip(),)
        return
    found = search.read(term, names_for(request).matches)
    if found.kind is None or wanted.setdefault("kind", found.kind) != found.kind:
        raise CannotSelect(
            _("All that this search finds cannot be acted on at once: search for a kind or a tag, or tick.")
        )


def describe(selection: Selection) -> str:
    """The selection in words, for people; for the log in English."""
    where = {"hot": _("hot jobs"), "deferred": _("deferred jobs"), None: _("all jobs")}[selection.table]
    names = (
        (_("state"), selection.state and state_name(selection.state)),
        (_("queue"), selection.queue),
        (_("kind"), selection.kind),
        (_("tag"), ", ".join(selection.tags)),
        (_("ended"), selection.ended and outcome_name(selection.ended)),
    )
    return f"{where}: " + ", ".join(f"{name} {value}" for name, value in names if value)


def _ask(
    page: ModelAdmin,
    request: HttpRequest,
    action: JobAction,
    form: forms.Form | None,
    selection: Selection,
    changelist: Any,
    ahead: Outlook,
) -> HttpResponse:
    return ask(
        page,
        request,
        action,
        form,
        template="admin/awa/confirm_matching.html",
        title=_("%(action)s: all jobs that match") % {"action": action.label},
        what=describe(selection),
        states=", ".join(state_name(state) for state in selection.states(Change(operation=action.operation))),
        count=grouped(changelist.result_count),
        is_capped=changelist.paginator.is_capped,
        is_window=changelist.window is not None or changelist.line_cap > 0,
        queue=get_settings().bulk_queue,
        is_served=ahead.is_served,
        is_paused=ahead.is_paused,
        selection=_sign(selection, _salt(request, action)),
        back_url=request.get_full_path(),
    )


def _start(
    page: ModelAdmin,
    request: HttpRequest,
    action: JobAction,
    form: forms.Form | None,
    selection: Selection,
    confirmation: str,
) -> HttpResponse:
    """Enqueue the job once. Raises: ValueError for a value of the form."""
    change = action.change(form)
    user = request.user
    with transaction.atomic(using=get_settings().database):
        made = bulk_operation.using(queue=get_settings().bulk_queue).enqueue(
            change, selection, user.get_username(), str(user.pk), confirmation
        )
        if made.created:
            values = "".join(
                f", {name} {value}" for name, value in (form.cleaned_data if form else {}).items()
            )
            with english():
                message = f"{action.label}{values}, all that match ({describe(selection)}): started."
            log(request, Job, [(str(made.id), f"job {made.id}", CHANGE, message)])
    job_id = made.id if made.created else made.holder_id
    if made.created:
        page.message_user(request, _("Job %(id)s does it.") % {"id": job_id}, messages.SUCCESS)
    else:
        text = _("Job %(id)s was started for this already: nothing is done twice.")
        page.message_user(request, text % {"id": job_id}, messages.WARNING)
    for model in (Job, HotJob):
        if request.user.has_perm(f"awa.view_{model._meta.model_name}"):
            return HttpResponseRedirect(url_of(page.admin_site.name, model, "change", job_id))
    return HttpResponseRedirect(request.get_full_path())


def _salt(request: HttpRequest, action: JobAction) -> str:
    """A confirmation is of this user, for this action: a page that is passed on asks anew."""
    return f"awa_django.admin.matching.{action.name}.{request.user.pk}"


def _sign(selection: Selection, salt: str) -> str:
    """The selection and a name for this confirmation of it, as only this site can write them."""
    payload = {"selection": msgspec.to_builtins(selection), "confirmation": secrets.token_hex(16)}
    return signing.dumps(payload, salt=salt)


def _read(text: str, salt: str) -> tuple[Selection, str]:
    """Raises: BadSignature for what was not signed here, or too long ago."""
    payload = signing.loads(text, salt=salt, max_age=LONGEST)
    return msgspec.convert(payload["selection"], Selection), payload["confirmation"]
