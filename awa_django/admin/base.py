"""What the pages share: capped counts, pages that only list, and how things are shown."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.paginator import Paginator
from django.db import router
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from awa_django.admin.limits import TooSlow, limited, too_slow
from awa_django.admin.words import grouped, state_name
from awa_django.states import JobState

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    BasePaginator = Paginator[Any]
else:
    ModelAdmin = admin.ModelAdmin
    BasePaginator = Paginator

# No page counts further: a count of millions of rows takes seconds, and nobody leafs that far.
COUNT_CAP = 10_000
# Names offered by a filter, and queues shown on their page.
CHOICES_CAP = 200
STATE_NAMES = frozenset(state.value for state in JobState)

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


class CappedPaginator(BasePaginator):
    """Counts to COUNT_CAP and has that many rows at most; ``is_capped`` tells when there are more."""

    is_capped = False

    @cached_property
    def count(self) -> int:
        queryset = cast("QuerySet[Any]", self.object_list)
        found = queryset.order_by()[: COUNT_CAP + 1].count()
        self.is_capped = found > COUNT_CAP
        return min(found, COUNT_CAP)

    @property
    def shown_count(self) -> str:
        count = grouped(self.count)
        return _("over %(count)s") % {"count": count} if self.is_capped else count


class ListOnlyAdmin(ModelAdmin):
    """A page that lists rows and changes none: it has no other URL than its list."""

    actions: Any = None
    list_display_links: Any = None
    list_per_page = 100
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by: Any = ()  # type: ignore[misc]
    paginator = CappedPaginator

    class Media:
        css = {"all": ["awa/themes.css", "awa/admin.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Only the filters of the page: no search of the data by hand-written parameters."""
        return any(lookup == getattr(choice, "parameter_name", None) for choice in self.list_filter)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        title = capfirst(str(self.opts.verbose_name_plural))
        try:
            return super().changelist_view(request, {"title": title, **(extra_context or {})})
        except TooSlow:
            return too_slow(self, request)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The list with its rows, which are all read here: within the time that a page may take."""
        with limited(router.db_for_read(self.model)):
            changelist = super().get_changelist_instance(request)
            changelist.result_list = list(changelist.result_list)
        return changelist

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        view = require_http_methods(["GET", "HEAD", "POST"])(self.changelist_view)
        return [path("", self.admin_site.admin_view(view), name=name)]


def url_of(site_name: str, model: type[Model], view: str, *args: object) -> str:
    """The address of a page of the model: its list, or with an id one of the object's own pages."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}"
    return reverse(name, args=args, current_app=site_name)


def show_state(state: str) -> str:
    """A state as a coloured label."""
    name = state if state in STATE_NAMES else "unknown"
    return format_html('<span class="awa-state awa-state-{}">{}</span>', name, state_name(state))


def show_instant(instant: datetime | None) -> str:
    """An instant as its distance from now, with the full date behind it."""
    if instant is None:
        return "-"
    return _time(instant, text=distance(instant), title=full_date(instant, "Y-m-d H:i:s"))


def show_date(instant: datetime, form: str = "Y-m-d H:i") -> str:
    """An instant as a date, with its distance from now behind it."""
    return _time(instant, text=full_date(instant, form), title=distance(instant))


def full_date(instant: datetime, form: str = "Y-m-d H:i") -> str:
    """An instant in the current time zone, with the zone's name."""
    local = timezone.localtime(instant)
    return f"{date_format(local, form)} {local.tzname() or ''}".strip()


def _time(instant: datetime, *, text: str, title: str) -> str:
    iso = timezone.localtime(instant).isoformat()
    return format_html('<time class="awa-time" datetime="{}" title="{}">{}</time>', iso, title, text)


def distance(instant: datetime) -> str:
    """How long ago, or in how long: ``3 min ago``, ``in 2 d``."""
    seconds = (instant - timezone.now()).total_seconds()
    amount = shorten(abs(seconds))
    return (_("in %(span)s") if seconds > 0 else _("%(span)s ago")) % {"span": amount}


def shorten(seconds: float) -> str:
    """A duration in its largest unit."""
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{grouped(int(seconds // length))} {unit}"
    return f"{int(seconds)} s"


def log(request: HttpRequest, model: type[Model], entries: Iterable[tuple[str, str, int, str]]) -> None:
    """Record what the user did: object id, its name, action flag and message for each."""
    content_type = ContentType.objects.get_for_model(model)
    user_id = cast("int", request.user.pk)  # the admin lets nobody in who has none
    LogEntry.objects.bulk_create(
        LogEntry(
            user_id=user_id,
            content_type=content_type,
            object_id=object_id,
            object_repr=name[:200],
            action_flag=flag,
            change_message=message,
        )
        for object_id, name, flag, message in entries
    )
