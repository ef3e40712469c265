"""Settings of a project whose queue lives on an alias of its own, beside the application's database."""

from __future__ import annotations

from tests.worker_settings import *  # noqa: F403

DATABASES["queue"] = env.db_url("QUEUE_URL")  # noqa: F405
DATABASE_ROUTERS = ["awa_django.router.AwaRouter"]
AWA["DATABASE"] = "queue"  # noqa: F405
