"""What is masked of a job: by its kind, as far as this process knows it, and by what its row says."""

from __future__ import annotations

import contextlib
import json

from awa_django import registry
from awa_django.codec import JSON
from awa_django.redaction import Secrets, find_secrets


def secret_names(kind: str, stored: str | None = None) -> frozenset[str]:
    """The arguments of a job that are masked where it is shown.

    Those that its kind declares here, and those with which it was enqueued: ``stored`` is the JSON text
    of ``MASKED_KEY`` in its metadata, where anybody may have written anything.
    """
    handler = registry.find(kind)
    declared = frozenset() if handler is None else frozenset(handler.secret)
    return declared.union(name for name in _listed(stored) if isinstance(name, str))


def former_secrets(stored: str | None) -> set[str]:
    """The values that secret arguments of a job had before they were changed; ``stored`` as above."""
    found: set[str] = set()
    for entry in _listed(stored):
        values = entry.get("former") if isinstance(entry, dict) else None
        if isinstance(values, list):
            found.update(value for value in values if isinstance(value, str))
    return found


def find_job_secrets(kind: str, args: str, stored: str | None = None) -> Secrets:
    """All that is masked of a job with these arguments (JSON text); ``stored`` as above."""
    return find_secrets(args, secret_names(kind, stored), former_secrets(stored))


def _listed(stored: str | None) -> list[JSON]:
    with contextlib.suppress(ValueError, RecursionError):
        listed: JSON = json.loads(stored or "[]")
        if isinstance(listed, list):
            return listed
    return []
