"""Querysets that read everywhere and write only where a write through the ORM is safe.

They are the base managers too, so related managers and ``Model.save`` cannot pass them by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Self, TypeVar

from django.db import NotSupportedError, models

from awa_django.conf import get_settings

ModelType = TypeVar("ModelType", bound=models.Model)


class ReadOnlyQuerySet(models.QuerySet[ModelType]):
    """Refuses every write, naming what does it instead."""

    def _refuse(self, method: str) -> NoReturn:
        raise NotSupportedError(
            f"{self.model.__name__}.objects.{method}() is refused: {self.model.written_by}"  # type: ignore[attr-defined]
        )

    def create(self, **_: Any) -> NoReturn:
        self._refuse("create")

    def bulk_create(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("bulk_create")

    def get_or_create(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("get_or_create")

    def update_or_create(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("update_or_create")

    def update(self, **_: Any) -> NoReturn:
        self._refuse("update")

    def bulk_update(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("bulk_update")

    def delete(self) -> NoReturn:
        self._refuse("delete")

    def select_for_update(
        self, nowait: bool = False, skip_locked: bool = False, of: Sequence[str] = (), no_key: bool = False
    ) -> Self:
        # No relation leads from these tables, so "self" is all there is to lock; and PostgreSQL takes no
        # table with its schema there.
        of = tuple(name for name in of if name != "self")
        return super().select_for_update(nowait=nowait, skip_locked=skip_locked, of=of, no_key=no_key)

    # The async forms call the ones above. Manager.from_queryset leaves delete out, as Django's own.
    delete.queryset_only = True  # type: ignore[attr-defined]


class ViewQuerySet(models.QuerySet[ModelType]):
    """The queryset of ``awa.jobs``: create, update and delete go through its triggers; locks are refused."""

    def select_for_update(self, *_: Any, **__: Any) -> NoReturn:
        raise NotSupportedError(
            "select_for_update() through awa.jobs locks nothing: PostgreSQL ignores row locks on a UNION ALL "
            "view. Use HotJob.objects.select_for_update() or DeferredJob.objects.select_for_update()."
        )

    def update_or_create(self, *_: Any, **__: Any) -> NoReturn:
        raise NotSupportedError(
            "Job.objects.update_or_create() is refused: it needs select_for_update(), and row locks through "
            "awa.jobs lock nothing. Use update() and look at its count, or a unique key when enqueuing."
        )

    def bulk_create(self, objs: Iterable[ModelType], *args: Any, **kwargs: Any) -> list[ModelType]:
        """As Django's. Raises: NotSupportedError for the conflict options, which do nothing on the view."""
        objs = list(objs)
        if kwargs.get("ignore_conflicts") or kwargs.get("update_conflicts") or any(args[1:3]):
            raise NotSupportedError(
                "Job.objects.bulk_create() takes no conflict options: ON CONFLICT does not reach through "
                "awa.jobs. Use enqueue_many() with a unique key."
            )
        for job in objs:
            if job.pk is not None:
                refuse_id(job.pk)
        return super().bulk_create(objs, *args, **kwargs)


def refuse_id(job_id: object) -> NoReturn:
    raise NotSupportedError(
        f"a job is not created with an id of its own ({job_id!r}): it comes from the sequence"
    )


class _ConfiguredManager(models.Manager[ModelType]):
    """Reads and writes the alias of ``AWA["DATABASE"]``, with or without the router, unless told another."""

    def get_queryset(self) -> models.QuerySet[ModelType]:
        queryset = super().get_queryset()
        return queryset if self._db else queryset.using(get_settings().database)


ReadOnlyManager = _ConfiguredManager.from_queryset(ReadOnlyQuerySet, "ReadOnlyManager")
ViewManager = _ConfiguredManager.from_queryset(ViewQuerySet, "ViewManager")
