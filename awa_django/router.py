"""The database router for a queue on an alias of its own."""

from __future__ import annotations

from typing import Any

from django.db import models

from awa_django.conf import get_settings

APP_LABEL = "awa"


class AwaRouter:
    """Sends the ``awa`` app, reads too, to the alias of ``AWA["DATABASE"]``, never to a replica.

    List it first in ``DATABASE_ROUTERS``. It has no opinion on other apps.
    """

    def db_for_read(self, model: type[models.Model], **_: Any) -> str | None:
        return get_settings().database if model._meta.app_label == APP_LABEL else None

    def db_for_write(self, model: type[models.Model], **_: Any) -> str | None:
        return get_settings().database if model._meta.app_label == APP_LABEL else None

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
        return db == get_settings().database if app_label == APP_LABEL else None
