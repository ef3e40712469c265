"""Every URL of the admin's part of the app, read from its patterns, and who may do what there.

A pattern or an action without an entry here fails the tests: whoever adds one says who it is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib import admin
from django.db import connection
from django.urls import URLPattern, URLResolver, reverse

from awa_django.admin.arguments import mark
from awa_django.admin.job_actions import JOB_ACTIONS
from tests.factories import insert_job

PAGES = {
    str(model._meta.model_name): page
    for model, page in admin.site._registry.items()
    if model._meta.app_label == "awa"
}
# In what every row of ``insert_rows`` says: whoever may not see a page finds none of it there.
MARK = "hidden"


@dataclass(frozen=True, slots=True)
class Route:
    """One pattern: its name, and the arguments its URL takes."""

    name: str
    arguments: tuple[str, ...]

    def url(self) -> str:
        """Of something that is there."""
        return reverse(f"admin:{self.name}", kwargs={name: EXAMPLES[name](self) for name in self.arguments})


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The permissions of who may GET, and of who may POST; None is nobody, whoever it is."""

    read: frozenset[str] | None = None
    write: frozenset[str] | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    """Of a POST that changes something."""


def _under(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _under(pattern.url_patterns, path)
        else:
            yield path, pattern


ROUTES = {
    str(pattern.name): Route(str(pattern.name), tuple(pattern.pattern.converters))
    for path, pattern in _under(admin.site.get_urls())
    if path.startswith("awa/") or str(pattern.name).startswith("awa_")
}


def _job_of(route: Route) -> int:
    return insert_job("scheduled" if "deferredjob" in route.name else "failed", kind=f"{MARK}.kind")


# What stands for an argument of a URL.
EXAMPLES: dict[str, Any] = {"object_id": _job_of}

ACCESS: dict[str, Access] = {
    **{f"awa_{name}_changelist": Access(read=frozenset({f"view_{name}"})) for name in PAGES},
    **{
        f"awa_{name}_{view}": Access(read=frozenset({f"view_{name}"}))
        for name in ("hotjob", "deferredjob", "job")
        for view in ("change", "live")
    },
    **{
        f"awa_{name}_arguments": Access(
            read=frozenset({f"view_{name}", "edit_job_args"}),
            write=frozenset({f"view_{name}", "edit_job_args"}),
            data={"args": '{"a": 1}', "seen": mark("{}")},
        )
        for name in ("hotjob", "deferredjob", "job")
    },
    # It sums up the pages; what it shows of each is for those who may see that one.
    "awa_dashboard_changelist": Access(read=frozenset({"view_queuemeta"})),
    "awa_dashboard_data": Access(read=frozenset({"view_queuemeta"})),
    "awa_queuemeta_pause": Access(write=frozenset({"pause_queue"}), data={"queue": "mail"}),
    "awa_queuemeta_resume": Access(write=frozenset({"pause_queue"}), data={"queue": f"{MARK}.queue"}),
}
# The actions of lists, beside the permission to see the list.
ACTIONS = {action.name: action.permission.removeprefix("awa.") for action in JOB_ACTIONS.values()} | {
    "pause_schedules": "pause_cronjob",
    "resume_schedules": "pause_cronjob",
    "run_schedules_now": "run_cronjob",
}


def insert_rows() -> None:
    """A row for each page to show, all of them marked."""
    text = f"{MARK}.text"
    data: dict[str, Any] = {
        "kind": f"{MARK}.kind",
        "queue": f"{MARK}.queue",
        "args": {text: text},
        "worker": text,
    }
    insert_job(unique_key=bytes(16), unique_states="11111111", **data)
    insert_job("failed", errors=[{"error": text}], **data)
    insert_job("scheduled", **{**data, "worker": None})
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO awa.job_kinds (kind, queue) VALUES (%s, %s)", [text, text])
        cursor.execute(
            "INSERT INTO awa.runtime_instances (name, hostname, pid, version, queues, concurrency) "
            "VALUES (%s, %s, 1, '1', ARRAY[%s], 1)",
            [text] * 3,
        )
        cursor.execute(
            "INSERT INTO awa.cron_jobs (name, cron_expr, kind, queue) VALUES (%s, '@daily', %s, %s)",
            [text] * 3,
        )
        cursor.execute(
            "UPDATE awa.leaders SET holder = %s, expires_at = now() + interval '1 hour'",
            [text],
        )
        cursor.execute("INSERT INTO awa.queue_meta VALUES (%s, true, now(), %s)", [f"{MARK}.queue", text])
