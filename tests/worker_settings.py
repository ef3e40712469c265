"""Settings of the worker processes that tests start: the example's, with the tests' own jobs."""

from __future__ import annotations

import json
import os

from example_project.settings import *  # noqa: F403

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
