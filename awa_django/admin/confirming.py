"""The page that asks before an action on jobs is done."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from awa_django.admin.base import ModelAdmin, url_of
from awa_django.admin.job_actions import JobAction


def ask(
    page: ModelAdmin,
    request: HttpRequest,
    action: JobAction,
    form: forms.Form | None,
    *,
    template: str,
    **shown: Any,
) -> HttpResponse:
    """Ask for a confirmation, and for the values of the form; ``shown`` is what the template shows beside."""
    request.current_app = page.admin_site.name
    context = {
        **page.admin_site.each_context(request),
        "opts": page.opts,
        "media": page.media + (form.media if form is not None else forms.Media()),
        "action": action,
        "form": form,
        "checkbox_name": ACTION_CHECKBOX_NAME,
        "list_url": url_of(page.admin_site.name, page.model, "changelist"),
        "action_url": request.get_full_path(),
        **shown,
    }
    return TemplateResponse(request, template, context)
