"""The pages of the admin and the commands that are timed: each list by every way it is looked at."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any
from urllib.parse import urlencode

from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import NoReverseMatch, reverse

# What a filter of each list is set to: what many jobs have, what ten of the last in order have, and nothing.
FILTERS: dict[str, dict[str, list[str]]] = {
    "hotjob": {
        "state": ["available", "running", "completed", "failed", "cancelled", "waiting_external"],
        "ended": ["timed_out", "superseded"],
        "queue": ["mail", "size-rare", "nowhere"],
        "kind": ["billing.charge", "size.rare"],
    },
    "deferredjob": {
        "state": ["scheduled", "retryable"],
        "queue": ["mail", "size-rare", "nowhere"],
        "kind": ["billing.renew", "size.rare"],
    },
    "job": {
        "state": ["available", "running", "completed", "failed", "scheduled", "retryable"],
        "queue": ["mail", "size-rare"],
        "kind": ["billing.renew", "size.rare"],
    },
}
SEARCHES = (
    "999999999999", "billing.charge", "billing", "size.rare", "no.such.kind", "f" * 32, "tag:customer-17",
    "tag:rare", "arg:order_id=17", "arg:customer_id=999",
)  # fmt: skip
COMMANDS = (
    ("awa_status",), ("awa_queues", "list"), ("awa_cron", "list"), ("awa_jobs", "list"),
    ("awa_jobs", "list", "--state", "failed"), ("awa_jobs", "list", "--queue", "size-rare"),
    ("awa_jobs", "list", "--kind", "size.rare"), ("awa_doctor", "--quick"),
)  # fmt: skip
# Reads every row: minutes, and one look at it is enough.
LONG_COMMANDS = (("awa_doctor", "--full"),)
SMALL = ("queuemeta", "uniqueclaim", "runtimeinstance", "cronjob", "leaderlease")


@dataclass(frozen=True, slots=True)
class Page:
    """Something that is opened: how it is called, and what opens it."""

    name: str
    open: Callable[[], Any]
    is_long: bool = False
    """Whether it may take as long as it does; then it is opened once."""


def pages(client: Client) -> Iterator[Page]:
    """All of them. Links to further pages are read from the page before."""
    for name in FILTERS:
        yield from _of_jobs(client, name)
    for name in SMALL:
        yield _page(client, name, {})
    yield _page(client, "uniqueclaim", {"p": "2"})
    yield _page(client, "uniqueclaim", {"p": "100"})
    yield _page(
        client, "uniqueclaim", {"q": _one("SELECT encode(unique_key, 'hex') FROM awa.job_unique_claims")}
    )
    try:
        address = reverse("admin:awa_dashboard_changelist")
    except NoReverseMatch:
        pass
    else:
        yield Page("dashboard", lambda: _get(client, address))
    yield Page("index of the admin", lambda: _get(client, reverse("admin:index")))
    for command in COMMANDS + LONG_COMMANDS:
        yield Page(
            "command " + " ".join(command), partial(call_as_asked, command), is_long=command in LONG_COMMANDS
        )


def _of_jobs(client: Client, name: str) -> Iterator[Page]:
    address = reverse(f"admin:awa_{name}_changelist")
    wanted = FILTERS[name]
    yield _page(client, name, {})
    for label, query in _further(client, address, {}):
        yield Page(f"{name}: {label}", lambda query=query: _get(client, address + query))  # type: ignore[misc]
    for column in ("1", "-1", "5", "-5"):
        yield _page(client, name, {"o": column})
    alone = [{column: value} for column, values in wanted.items() for value in values]
    pairs = [
        {one: first, other: second}
        for one, other in combinations(wanted, 2)
        for first in wanted[one]
        for second in wanted[other]
        if second in ("size-rare", "size.rare", "mail")
    ]
    for params in alone + pairs:
        yield _page(client, name, params)
    for params in ({"queue": "mail"}, {"kind": "size.rare"}, {"state": "failed"}, {"state": "retryable"}):
        for label, query in _further(client, address, params):
            title = f"{name}: {_title(params)}, {label}"
            yield Page(title, lambda query=query: _get(client, address + query))  # type: ignore[misc]
    yield _page(client, name, dict.fromkeys(("queue", "kind"), "size-rare") | {"o": "-1"})
    table = "awa.scheduled_jobs" if name == "deferredjob" else "awa.jobs_hot"
    known = _one(f"SELECT id FROM {table} ORDER BY id OFFSET 100 LIMIT 1")
    for term in (known, *SEARCHES):
        yield _page(client, name, {"q": term})
    yield _page(client, name, {"q": "tag:rare", "queue": "mail"})
    yield Page(f"{name}: a job", lambda: _get(client, reverse(f"admin:awa_{name}_change", args=[known])))


def _further(client: Client, address: str, params: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Links to other pages of a list, as far as it has them."""
    try:
        first = _get(client, address, params).context["cl"]
    except AssertionError:  # the page itself is in the table, and is told there
        return
    if first.pages.next:
        yield "page 2", first.pages.next
    if first.pages.last:
        yield "last page", first.pages.last
        before = _get(client, address + first.pages.last).context["cl"].pages.previous
        if before:
            yield "last page but one", before
    if first.window is not None and first.window.next_url:
        yield "next window", first.window.next_url


def _page(client: Client, name: str, params: dict[str, str]) -> Page:
    address = reverse(f"admin:awa_{name}_changelist")
    return Page(f"{name}: {_title(params)}" if params else name, lambda: _get(client, address, params))


def _title(params: dict[str, str]) -> str:
    words = {"q": "search", "o": "sorted by column", "p": "page"}
    return ", ".join(f"{words.get(name, name)} {value}" for name, value in params.items())


def _get(client: Client, address: str, params: dict[str, str] | None = None) -> Any:
    if params:
        address += "?" + urlencode(params)
    response = client.get(address)
    if response.status_code != 200:
        raise AssertionError(f"{address} answers {response.status_code}")
    return response


def call_as_asked(command: tuple[str, ...]) -> None:
    """Its exit code is about the queue: the running jobs of these tables have no worker."""
    with suppress(SystemExit):
        call_command(*command, stdout=io.StringIO(), stderr=io.StringIO())


def _one(query: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return str(cursor.fetchone()[0])
