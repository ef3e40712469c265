"""Settings of the worker processes that tests start: the example's, with the tests' own jobs."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

from example_project.settings import *  # noqa: F403

# Whoever kills pytest does not mean to leave its workers to the machine. The signal is for one process: not
# for its children, which read this too.
if sys.platform == "linux" and os.environ.get("TEST_STARTED_BY") == str(os.getppid()):
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

# Without the shop, whose periodic job would come between the tests' own.
INSTALLED_APPS = [app for app in INSTALLED_APPS if app != "example_project.shop"]  # noqa: F405
ROOT_URLCONF = "tests.worker_settings"
urlpatterns: list[object] = []
AWA = {"IMPORTS": ["tests.handlers", "tests.misbehaving"], **json.loads(os.environ.get("TEST_AWA", "{}"))}
DATABASES["default"] |= json.loads(os.environ.get("TEST_DATABASE", "{}"))  # noqa: F405
if "TEST_TASKS" in os.environ:
    TASKS = json.loads(os.environ["TEST_TASKS"])
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(process)d %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {"awa_django": {"handlers": ["stderr"], "level": "DEBUG", "propagate": False}},
}
