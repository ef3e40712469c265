"""Which tasks framework the backend stands on, and what is said where there is none."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import django
import pytest

import awa_django
from awa_django.errors import ConfigurationError

# By its path: on Django 5.2 without the package the module cannot be imported.
FRAMEWORK = Path(awa_django.__file__).parent / "tasks_backend" / "framework.py"


def test_an_old_django_without_the_package_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(django, "VERSION", (5, 2, 0, "final", 0))
    monkeypatch.setitem(sys.modules, "django_tasks", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'awa-django\[tasks\]'"):
        runpy.run_path(str(FRAMEWORK))
