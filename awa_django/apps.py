"""AppConfig: finds the declared jobs when Django starts."""

from __future__ import annotations

from django.apps import AppConfig


class AwaConfig(AppConfig):
    name = "awa_django"
    label = "awa"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Not at the top: this module is imported before settings are needed, these are not.
        from awa_django import registry

        registry.discover()
