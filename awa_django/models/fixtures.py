"""What ``loaddata`` may not do: it writes past the managers, and past ``save``."""

from __future__ import annotations

from typing import Any

from django.db import NotSupportedError, models


def refuse_raw_save(sender: type[models.Model], raw: bool, **_: Any) -> None:
    """Receive ``pre_save``. Raises: NotSupportedError for a row of a fixture."""
    if raw:
        raise NotSupportedError(
            f"rows of {sender._meta.label} are not loaded from a fixture: the queue's own rules write them. "
            "Leave them out: `loaddata --exclude awa`, or `dumpdata --exclude awa` beforehand."
        )
