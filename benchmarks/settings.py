"""The example's settings, with the benchmarks' jobs and without the shop's periodic one."""

from __future__ import annotations

from example_project.settings import *  # noqa: F403

INSTALLED_APPS = [app for app in INSTALLED_APPS if app != "example_project.shop"]  # noqa: F405
ROOT_URLCONF = "benchmarks.settings"
urlpatterns: list[object] = []
DEBUG = False
AWA = {"IMPORTS": ["benchmarks.jobs"]}
LOGGING = {}
