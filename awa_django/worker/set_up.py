"""Set Django up in a process that did not come in through the project's ``manage.py``, as that would."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
from importlib import import_module

import django
from django.apps import apps

from awa_django.logs import speak_on_a_terminal

# Where the supervisor leaves its ``sys.path`` for the forkserver, which has that of a bare interpreter.
PATH_VARIABLE = "AWA_WORKER_PATH"


def leave_path() -> None:
    """Have the next process that calls ``take_path`` import from where this one does."""
    os.environ[PATH_VARIABLE] = json.dumps(sys.path)


def take_path() -> None:
    """Import from where the supervisor does: a ``manage.py`` may have put directories there itself."""
    path = os.environ.pop(PATH_VARIABLE, None)  # programs that jobs start have no use for it
    if path is not None:
        sys.path[:] = json.loads(path)


def is_being_set_up() -> bool:
    """Whether this is a child that runs the project's ``manage.py`` for what that prepares."""
    # Set by multiprocessing itself, for its own refusal to start a process just then.
    return getattr(multiprocessing.current_process(), "_inheriting", False)


def set_up() -> None:
    """``django.setup()``, once; a project of django-configurations gets its importer first."""
    if apps.ready:
        return
    if "DJANGO_CONFIGURATION" in os.environ:
        with contextlib.suppress(ModuleNotFoundError):
            import_module("configurations.importer").install()
    django.setup()
    speak_on_a_terminal()
