"""Settings of the worker processes that tests start, with a log as Django has it where a project has none."""

from __future__ import annotations

from tests.worker_settings import *  # noqa: F403

LOGGING = {}
