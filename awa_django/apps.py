"""AppConfig: registers the checks and finds the declared jobs when Django starts."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class AwaConfig(AppConfig):
    name = "awa_django"
    label = "awa"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Not at the top: models may be imported from here on only, and jobs' modules import theirs.
        from awa_django import registry

        import_module("awa_django.checks")
        registry.discover()
