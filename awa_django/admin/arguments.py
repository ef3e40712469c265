"""The page that edits the arguments of a job: exact JSON, in which what is masked stays as it is stored."""

from __future__ import annotations

import inspect
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l
from django.views.decorators.http import require_http_methods

from awa_django import operations, registry
from awa_django.admin.base import ModelAdmin, log, url_of
from awa_django.admin.unmask import Masked, unmask
from awa_django.admin.way_back import carried, to_list
from awa_django.admin.words import refusal, state_name
from awa_django.conf import get_settings
from awa_django.errors import InvalidJob
from awa_django.exact_json import read, write
from awa_django.handler import Handler
from awa_django.job_secrets import find_job_secrets, former_secrets, secret_names
from awa_django.models import Job
from awa_django.operations.arguments import EDITABLE_STATES
from awa_django.redaction import LONGEST_SHOWN, Secrets, find_secrets, pretty_json, secret_values
from awa_django.states import DEFERRED_STATES
from awa_django.storage.operate import Editable, editable_args

LONGEST_LOGGED = 60


class ArgumentsForm(forms.Form):
    args = forms.CharField(
        label=_l("Arguments"),
        strip=False,
        widget=forms.Textarea(attrs={"rows": 20, "spellcheck": "false", "class": "awa-code vLargeTextField"}),
    )
    seen = forms.CharField(widget=forms.HiddenInput)


class ArgumentsMixin(ModelAdmin):
    """Gives a list of jobs the page that edits the arguments of one."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_http_methods(["GET", "HEAD", "POST"])(self.arguments_view))
        name = f"{self.opts.app_label}_{self.opts.model_name}_arguments"
        return [*super().get_urls(), path("<int:object_id>/arguments/", view, name=name)]

    def arguments_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        if not (self.has_view_permission(request) and request.user.has_perm("awa.edit_job_args")):
            raise PermissionDenied
        connection = connections[get_settings().database]
        job = editable_args(connection, object_id) if object_id <= operations.LARGEST_ID else None
        if job is None or not _may_see(request, job):
            raise Http404(f"job {object_id} does not exist, or was deleted after its retention")
        shown = _shown(job)
        problem = ""
        if job.state not in EDITABLE_STATES:
            problem = _("Job %(id)s is %(state)s: its arguments cannot be changed.")
        elif shown is None:
            problem = _("The arguments of job %(id)s are too large to be edited here.")
        if problem or shown is None:
            message = problem % {"id": object_id, "state": state_name(job.state)}
            self.message_user(request, message, messages.WARNING)
            return self._back(request, object_id)
        form = ArgumentsForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            try:
                return self._save(request, object_id, job, shown, form.cleaned_data)
            except InvalidJob as exc:
                form.add_error("args", str(exc))
        elif request.method != "POST":
            form.initial = {"args": shown, "seen": mark(job.args)}
        return self._ask(request, object_id, job, form)

    def _save(
        self, request: HttpRequest, job_id: int, job: Editable, shown: str, data: dict[str, str]
    ) -> HttpResponse:
        """Write what was typed. Raises: InvalidJob when it cannot be."""
        wanted = read(data["args"])
        before = read(job.args, checks=False)
        try:
            text = write(unmask(wanted, read(shown, checks=False), before))
        except Masked as exc:
            if not constant_time_compare(data["seen"], mark(job.args)):
                return self._meanwhile(request, job_id)
            raise InvalidJob(str(exc)) from exc
        if read(text) == before:  # sent twice, or nothing was typed
            message = _("Job %(id)s has these arguments already.") % {"id": job_id}
            self.message_user(request, message, messages.WARNING)
            return self._back(request, job_id)
        if not constant_time_compare(data["seen"], mark(job.args)):
            return self._meanwhile(request, job_id)
        with transaction.atomic(using=get_settings().database):
            result = operations.edit_args(job_id, text, seen=job.args)
            outcome = "; ".join(_differences(job, text))
            if not result.changed:
                outcome = f"left alone: {result.refused[0].reason}"
            log(request, Job, [(str(job_id), f"job {job_id}", CHANGE, f"Edit arguments: {outcome}.")])
        if result.changed:
            message = _("The arguments of job %(id)s were changed.") % {"id": job_id}
            self.message_user(request, message, messages.SUCCESS)
        else:
            message = _("Job %(id)s was left as it is: it %(reason)s.")
            values = {"id": job_id, "reason": refusal(result.refused[0])}
            self.message_user(request, message % values, messages.WARNING)
        return self._back(request, job_id)

    def _meanwhile(self, request: HttpRequest, job_id: int) -> HttpResponse:
        message = _("Job %(id)s has got other arguments meanwhile: here they are, nothing was changed.")
        self.message_user(request, message % {"id": job_id}, messages.WARNING)
        return HttpResponseRedirect(self._url(request, "arguments", job_id))

    def _ask(self, request: HttpRequest, job_id: int, job: Editable, form: ArgumentsForm) -> HttpResponse:
        request.current_app = self.admin_site.name
        handler = registry.find(job.kind)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Edit the arguments of job %(id)s") % {"id": job_id},
            "opts": self.opts,
            "media": self.media,
            "form": form,
            "kind": job.kind,
            "state": state_name(job.state),
            "declared": "" if handler is None else _declared(handler),
            "has_unique_key": job.unique_key is not None,
            "back_url": self._url(request, "change", job_id),
            "list_url": to_list(url_of(self.admin_site.name, self.model, "changelist"), request),
        }
        return TemplateResponse(request, "admin/awa/edit_arguments.html", context)

    def _back(self, request: HttpRequest, job_id: int) -> HttpResponse:
        return HttpResponseRedirect(self._url(request, "change", job_id))

    def _url(self, request: HttpRequest, view: str, job_id: int) -> str:
        return carried(url_of(self.admin_site.name, self.model, view, job_id), request)


def _may_see(request: HttpRequest, job: Editable) -> bool:
    """Whether one of the lists that the user may see has the job: it may stand in another than this one."""
    table = "deferredjob" if job.state in DEFERRED_STATES else "hotjob"
    return any(request.user.has_perm(f"awa.view_{name}") for name in (table, "job"))


def _shown(job: Editable) -> str | None:
    """The arguments as they are edited; None when there is too much of them."""
    text = _pretty(job.args, find_job_secrets(job.kind, job.args, job.secret))
    return text if len(text) <= LONGEST_SHOWN else None


def _pretty(text: str, secrets: Secrets) -> str:
    return pretty_json(text, limit=2 * LONGEST_SHOWN, secrets=secrets)


def mark(args: str) -> str:
    """Names these arguments without telling anything of them."""
    return salted_hmac("awa_django.admin.arguments", args, algorithm="sha256").hexdigest()


def _declared(handler: Handler) -> str:
    """The parameters of the kind, as they are declared."""
    parameters = list(inspect.signature(handler.function).parameters.values())
    return ", ".join(map(_parameter, parameters[1 if handler.takes_context else 0 :]))


def _parameter(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    # What a module declares as text is not quoted: people know it without.
    text = str(parameter.replace(annotation=inspect.Parameter.empty))
    if annotation is inspect.Parameter.empty:
        return text
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    name, equals, default = text.partition("=")
    return f"{name}: {shown}" + (f" = {default}" if equals else "")


def _differences(job: Editable, text: str) -> list[str]:
    """What changed, for the log: masked by the secrets of before and of now, and short."""
    names = secret_names(job.kind, job.secret)
    known = former_secrets(job.secret) | secret_values(job.args, names)
    secrets = find_secrets(text, names, known)
    before, after = (read(_pretty(each, secrets), checks=False) for each in (job.args, text))
    stored = read(job.args, checks=False)
    written = read(text, checks=False)
    found = []
    for name in sorted({*stored, *written}):
        if name in stored and name in written and stored[name] == written[name]:
            continue
        old, new = (_short(values[name]) if name in values else "nothing" for values in (before, after))
        found.append(f"{name} {old} to {new}" if old != new else f"{name} changed")
    return found


def _short(value: Any) -> str:
    text = write(value)
    return text if len(text) <= LONGEST_LOGGED else f"{text[:LONGEST_LOGGED]}..."
