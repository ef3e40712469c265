"""Settings of a project whose reads go to a replica, with or without our router before its own."""

from __future__ import annotations

from typing import Any

from tests.worker_settings import *  # noqa: F403

DATABASES["replica"] = env.db_url("REPLICA_URL")  # noqa: F405
DATABASE_ROUTERS = ["tests.replica_settings.ReadsFromReplica"]
if env.bool("AWA_ROUTER", default=False):  # noqa: F405
    DATABASE_ROUTERS.insert(0, "awa_django.router.AwaRouter")


class ReadsFromReplica:
    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"
