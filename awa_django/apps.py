"""AppConfig: registers the checks and finds the declared jobs when Django starts."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_migrate, pre_save
from django.utils.translation import gettext_lazy as _


class AwaConfig(AppConfig):
    name = "awa_django"
    label = "awa"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Not at the top: models may be imported from here on only, and jobs' modules import theirs.
        from awa_django import logs, registry
        from awa_django.models.fixtures import refuse_raw_save

        logs.undo_disabling()
        for name in ("checks", "database_checks", "deployment_checks", "bulk_operation"):
            import_module(f"awa_django.{name}")
        post_migrate.connect(_install_without_migrations, sender=self)
        for model in self.get_models():
            pre_save.connect(refuse_raw_save, sender=model)
        modules = registry.discover()
        backends = [str(params.get("BACKEND", "")) for params in getattr(settings, "TASKS", {}).values()]
        # Not imported for nothing: on Django 5.2 it needs the django-tasks package.
        if any(path.startswith("awa_django.tasks_backend.") for path in backends):
            import_module("awa_django.tasks_backend").load(modules)


def _install_without_migrations(**sent: Any) -> None:
    # Imported by `migrate` only.
    from awa_django.migrations._unmigrated import install

    install(**sent)
