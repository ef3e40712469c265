"""Queues: what waits and runs in each, and the buttons that pause it, for a while too, and resume it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l
from django.views.decorators.http import require_POST, require_safe

from awa_django import operations
from awa_django.admin.base import CHOICES_CAP, ListOnlyAdmin, full_date, log, show_instant
from awa_django.admin.limits import TooSlow, limited, too_slow
from awa_django.admin.words import grouped
from awa_django.conf import get_settings
from awa_django.models import QueueMeta
from awa_django.operations import QueueResult
from awa_django.storage.insert import database_now
from awa_django.storage.queues import known_queues
from awa_django.storage.status import QueueStatus, queue_status

# The highest number that is shown as one: 200 queues at this cap are 0.8 million index entries, 0.2 s.
COUNT_CAP = 1_000
SOON = timedelta(hours=1)


# Seconds of a pause, and what they are called.
LASTS = ((0, _l("until resumed")), (300, _l("5 minutes")), (900, _l("15 minutes")), (3600, _l("1 hour")),
    (4 * 3600, _l("4 hours")), (24 * 3600, _l("24 hours")))  # fmt: skip


class PauseForm(forms.Form):
    """For how long, or until when, or neither: until it is resumed."""

    queue = forms.CharField(strip=False, required=False)  # the operation says what is wrong with a name
    lasts = forms.TypedChoiceField(choices=LASTS, coerce=int, required=False)
    until = forms.DateTimeField(required=False)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if data.get("lasts") and data.get("until"):
            raise forms.ValidationError(_("Choose how long the pause lasts, or until when: not both."))
        if data.get("until") and data["until"] <= _now():
            raise forms.ValidationError(_("That instant has passed: choose one to come."))
        return data

    def end(self) -> datetime | None:
        """When it ends by itself, on the database's clock, which ends it."""
        lasts = self.cleaned_data["lasts"]  # "" where it was not sent
        until: datetime | None = self.cleaned_data["until"]
        return _now() + timedelta(seconds=lasts) if lasts else until


@admin.register(QueueMeta)
class QueueMetaAdmin(ListOnlyAdmin):
    """All queues that are known from somewhere, not only those that were paused once."""

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("", wrap(require_safe(self.changelist_view)), name="awa_queuemeta_changelist"),
            path("pause/", wrap(require_POST(self.pause_view)), name="awa_queuemeta_pause"),
            path("resume/", wrap(require_POST(self.resume_view)), name="awa_queuemeta_resume"),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        request.current_app = self.admin_site.name
        connection = connections[get_settings().database]
        try:
            with limited(connection.alias):
                names = known_queues(connection, limit=CHOICES_CAP)
                # One more than what is shown as a number: then there are more.
                overview = queue_status(connection, names, cap=COUNT_CAP + 1, soon=SOON, with_others=True)
        except TooSlow:
            return too_slow(self, request)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Queues"),
            "opts": self.opts,
            "media": self.media,
            "queues": [self._row(queue) for queue in overview],
            "is_capped": len(names) == CHOICES_CAP,
            "can_pause": self._may_pause(request),
            "lasts": LASTS,
            "zone": timezone.get_current_timezone_name(),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/awa/queues.html", context)

    def pause_view(self, request: HttpRequest) -> HttpResponse:
        if not self._may_pause(request):
            raise PermissionDenied
        form = PauseForm(request.POST)
        if not form.is_valid():
            text = " ".join(str(error) for errors in form.errors.values() for error in errors)
            self.message_user(request, text, messages.ERROR)
            return self._list()
        queue, until = form.cleaned_data["queue"], form.end()

        def pause() -> QueueResult:
            by = request.user.get_username()
            result = operations.pause_queue(queue, by=by, until=until, shorten=False)
            if until is not None and not result.changed and (longer := self._longer_pause(queue, until)):
                raise ValueError(longer)
            return result

        return self._change(request, queue, pause, until)

    @staticmethod
    def _longer_pause(queue: str, until: datetime) -> str:
        """Why the queue is not paused until then: it is paused for longer already."""
        [seen] = queue_status(connections[get_settings().database], [queue], cap=1, soon=SOON)
        if not seen.paused or (seen.paused_until is not None and seen.paused_until <= until):
            return ""
        by, end = seen.paused_by, seen.paused_until
        if end is None and by:
            text = _("Queue %(queue)s is paused until it is resumed already by %(name)s: resume it first.")
        elif end is None:
            text = _("Queue %(queue)s is paused until it is resumed already: resume it first.")
        elif by:
            text = _("Queue %(queue)s is paused until %(instant)s already by %(name)s: resume it first.")
        else:
            text = _("Queue %(queue)s is paused until %(instant)s already: resume it first.")
        return text % {"queue": queue, "name": by, "instant": "" if end is None else full_date(end)}

    def resume_view(self, request: HttpRequest) -> HttpResponse:
        if not self._may_pause(request):
            raise PermissionDenied
        queue = request.POST.get("queue", "")
        return self._change(request, queue, lambda: operations.resume_queue(queue))

    def _change(
        self,
        request: HttpRequest,
        queue: str,
        change: Callable[[], QueueResult],
        until: datetime | None = None,
    ) -> HttpResponse:
        try:
            with transaction.atomic(using=get_settings().database):
                result = change()
                verb = "paused" if result.paused else "resumed"
                end = "" if until is None else f" until {full_date(until)}"
                outcome = f"{verb}{end}" if result.changed else f"{verb}{end} already"
                log(request, QueueMeta, [(queue, queue, CHANGE, f"Queue is {outcome}.")])
        except ValueError as exc:
            self.message_user(request, str(exc), messages.ERROR)
        else:
            level = messages.SUCCESS if result.changed else messages.WARNING
            self.message_user(request, _told(result, queue, until), level)
        return self._list()

    def _list(self) -> HttpResponse:
        return HttpResponseRedirect(
            reverse("admin:awa_queuemeta_changelist", current_app=self.admin_site.name)
        )

    @staticmethod
    def _may_pause(request: HttpRequest) -> bool:
        return bool(request.user.has_perm("awa.pause_queue"))

    @staticmethod
    def _row(queue: QueueStatus) -> dict[str, Any]:
        return {
            "name": queue.queue,
            "paused": queue.paused,
            "paused_by": queue.paused_by,
            "paused_at": show_instant(queue.paused_at),
            "paused_until": show_instant(queue.paused_until) if queue.paused_until else _("until resumed"),
            "available": _count(queue.available),
            "running": _count(queue.running),
            "deferred": _count(queue.deferred),
        }


def _told(result: QueueResult, queue: str, until: datetime | None) -> str:
    """What came of it, for the user."""
    if not result.paused:
        text = (
            _("Queue %(queue)s is resumed.") if result.changed else _("Queue %(queue)s is resumed already.")
        )
    elif until is None:
        text = _("Queue %(queue)s is paused.") if result.changed else _("Queue %(queue)s is paused already.")
    elif result.changed:
        text = _("Queue %(queue)s is paused until %(instant)s.")
    else:
        text = _("Queue %(queue)s is paused until %(instant)s already.")
    return text % {"queue": queue, "instant": "" if until is None else full_date(until)}


def _now() -> datetime:
    return database_now(connections[get_settings().database])


def _count(number: int) -> str:
    if number > COUNT_CAP:
        return _("over %(count)s") % {"count": grouped(COUNT_CAP)}
    return grouped(number)
