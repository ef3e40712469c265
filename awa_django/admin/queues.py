"""Queues: what waits and runs in each, and the button that pauses it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST, require_safe

from awa_django import operations
from awa_django.admin.base import CHOICES_CAP, ListOnlyAdmin, log, show_instant
from awa_django.conf import get_settings
from awa_django.models import QueueMeta
from awa_django.storage.queues import QueueOverview, known_queues, queue_overview

# Two counts for each queue: 200 queues at this cap are 0.4 million index entries, about 0.1 s.
COUNT_CAP = 1_000


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
        names = known_queues(connection, limit=CHOICES_CAP)
        # One more than what is shown as a number: then there are more.
        overview = queue_overview(connection, names, cap=COUNT_CAP + 1)
        context = {
            **self.admin_site.each_context(request),
            "title": "Queues",
            "opts": self.opts,
            "media": self.media,
            "queues": [self._row(queue) for queue in overview],
            "is_capped": len(names) == CHOICES_CAP,
            "can_pause": self._may_pause(request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/awa/queues.html", context)

    def pause_view(self, request: HttpRequest) -> HttpResponse:
        return self._change(request, pause=True)

    def resume_view(self, request: HttpRequest) -> HttpResponse:
        return self._change(request, pause=False)

    def _change(self, request: HttpRequest, *, pause: bool) -> HttpResponse:
        if not self._may_pause(request):
            raise PermissionDenied
        queue = request.POST.get("queue", "")
        verb = "paused" if pause else "resumed"
        try:
            with transaction.atomic(using=get_settings().database):
                if pause:
                    result = operations.pause_queue(queue, by=request.user.get_username())
                else:
                    result = operations.resume_queue(queue)
                self._log(
                    request, queue, f"Queue {verb}." if result.changed else f"Queue was {verb} already."
                )
        except ValueError as exc:
            self.message_user(request, str(exc), messages.ERROR)
        else:
            outcome = verb if result.changed else f"{verb} already"
            level = messages.SUCCESS if result.changed else messages.WARNING
            self.message_user(request, f"Queue {queue} is {outcome}.", level)
        return HttpResponseRedirect(
            reverse("admin:awa_queuemeta_changelist", current_app=self.admin_site.name)
        )

    @staticmethod
    def _may_pause(request: HttpRequest) -> bool:
        return bool(request.user.has_perm("awa.pause_queue"))

    @staticmethod
    def _log(request: HttpRequest, queue: str, message: str) -> None:
        log(request, QueueMeta, [(queue, queue, CHANGE, message)])

    @staticmethod
    def _row(queue: QueueOverview) -> dict[str, Any]:
        return {
            "name": queue.queue,
            "paused": queue.paused,
            "paused_by": queue.paused_by,
            "paused_at": show_instant(queue.paused_at),
            "paused_until": show_instant(queue.paused_until) if queue.paused_until else "until resumed",
            "available": _count(queue.available),
            "running": _count(queue.running),
            "deferred": _count(queue.deferred),
        }


def _count(number: int) -> str:
    return f"over {COUNT_CAP:,}" if number > COUNT_CAP else f"{number:,}"
