"""Unique claims: which job holds which key."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from awa_django.admin.base import ListOnlyAdmin
from awa_django.models import UniqueClaim


@admin.register(UniqueClaim)
class UniqueClaimAdmin(ListOnlyAdmin):
    """One row for each key that a job holds now."""

    list_display = ("key", "holder")
    search_fields = ("unique_key",)
    search_help_text = _l("The 32 hexadecimal digits of a key.")
    ordering = ("unique_key",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[UniqueClaim], search_term: str
    ) -> tuple[QuerySet[UniqueClaim], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(unique_key=bytes.fromhex(term)), False
        except ValueError:
            return queryset.none(), False

    @admin.display(description=_l("unique key"))
    def key(self, claim: UniqueClaim) -> str:
        return format_html("<code>{}</code>", bytes(claim.unique_key).hex())

    @admin.display(description=_l("held by"))
    def holder(self, claim: UniqueClaim) -> str:
        url = reverse("admin:awa_job_change", args=[claim.job_id], current_app=self.admin_site.name)
        return format_html('<a href="{}">{}</a>', url, _("job %(id)s") % {"id": claim.job_id})
