"""What a role may do with the tables of the schema; docs/roles.md has the grants."""

from __future__ import annotations

from awa_django.storage._sql import Connection, fetch

_ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")
WORKERS_RIGHTS: dict[str, tuple[str, ...]] = {
    "awa.jobs_hot": _ALL,
    "awa.scheduled_jobs": _ALL,
    "awa.job_unique_claims": ("SELECT", "INSERT", "DELETE"),
    "awa.runtime_instances": _ALL,
    "awa.waiters": _ALL,
    "awa.queue_stats": _ALL,
    "awa.queue_stats_deltas": _ALL,
    "awa.queue_totals": _ALL,
    "awa.cron_jobs": _ALL,
    "awa.job_kinds": ("SELECT", "INSERT", "UPDATE"),
    "awa.leaders": ("SELECT", "UPDATE"),
    "awa.queue_meta": ("SELECT",),
    "awa.schema_version": ("SELECT",),
}


def missing_grants(connection: Connection) -> list[str]:
    """The GRANT statements that this role still needs to do all that a worker does."""
    pairs = [(table, privilege) for table, rights in WORKERS_RIGHTS.items() for privilege in rights]
    tables, privileges = (list(each) for each in zip(*pairs, strict=True))
    rows = fetch(connection, "missing_grants", tables=tables, privileges=privileges)
    return [statement for (statement,) in rows]
