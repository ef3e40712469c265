"""The account of a run of the demo: how each job ended, and whether that is how it had to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from django.db import connections
from django.db.models import Sum
from rich.box import SIMPLE_HEAD
from rich.table import Table

from awa_django.conf import get_settings
from example_project.shop.demo.load import POINTS, Ending, Load
from example_project.shop.models import Message, Order

HEADINGS = {
    Ending.COMPLETED: "completed",
    Ending.RETRIED: "retried",
    Ending.FAILED: "failed",
    Ending.CANCELLED: "cancelled",
    Ending.SCHEDULED: "later",
}
LEGEND = (
    "refused: duplicates that a unique key kept out; retried: completed after a retry; "
    "later: still scheduled; wrong: not as designed"
)


def endings(ids: list[int]) -> Mapping[int, Ending]:
    """How each of the jobs stands now, as the database has it."""
    with connections[get_settings().database].cursor() as cursor:
        cursor.execute("SELECT id, state::text, attempt FROM awa.jobs WHERE id = ANY (%s)", [ids])
        found = {job_id: _ending(state, attempt) for job_id, state, attempt in cursor.fetchall()}
    return {job_id: found.get(job_id, Ending.LOST) for job_id in ids}


def account(load: Load) -> tuple[Table, list[str]]:
    """The table of what became of the load, and what is wrong with it."""
    ended = endings(load.ids())
    total, problems = Counter(ended.values()), list(load.problems)
    # Narrow enough for a terminal of 80 columns.
    table = Table(
        title=f"Account of {load.tag}", box=SIMPLE_HEAD, padding=0, pad_edge=False, show_footer=True
    )
    table.add_column("group", footer="total")
    duplicates = sum(group.duplicates for group in load.groups)
    for heading, footer in (
        ("jobs", len(ended)),
        ("refused", duplicates),
        *((heading, total[ending]) for ending, heading in HEADINGS.items()),
        ("wrong", sum(ended[job_id] != group.designed for group in load.groups for job_id in group.ids)),
    ):
        table.add_column(heading, str(footer), justify="right")
    for group in load.groups:
        counts = Counter(ended[job_id] for job_id in group.ids)
        wrong = len(group.ids) - counts[group.designed]
        table.add_row(
            group.name,
            str(len(group.ids)),
            str(group.duplicates or ""),
            *(str(counts[ending] or "") for ending in HEADINGS),
            str(wrong or ""),
        )
        if wrong:
            ends = ", ".join(f"{count} {ending}" for ending, count in counts.items())
            problems.append(f"{group.name}: all {len(group.ids)} should be {group.designed}, but are {ends}")
    return table, problems + _wrong_effects(load)


def rates(load: Load) -> str:
    """How fast the jobs that were due at once ran."""
    due = [job_id for group in load.groups if group.at_once for job_id in group.ids]
    with connections[get_settings().database].cursor() as cursor:
        cursor.execute(
            """
            SELECT count(*), extract(epoch FROM max(finalized_at) - min(attempted_at))
            FROM awa.jobs
            WHERE id = ANY (%s) AND state = 'completed'
            """,
            [due],
        )
        count, seconds = cursor.fetchone()
    if not seconds:
        return "no job ran"
    return (
        f"{count} jobs that were due at once ran in {seconds:.1f} s: {count / float(seconds):,.0f} a second"
    )


def _wrong_effects(load: Load) -> list[str]:
    """What is wrong with the rows that the jobs wrote."""
    problems = []
    with connections[get_settings().database].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM awa.jobs WHERE tags @> %s::text[] AND id <> ALL (%s)",
            [[load.tag], load.ids()],
        )
        if unknown := cursor.fetchone()[0]:
            problems.append(f"{unknown} jobs bear the tag {load.tag} that nobody enqueued")
    rolled_back = [order.receipt_job_id for order in load.rolled_back if order.receipt_job_id]
    if set(endings(rolled_back).values()) != {Ending.LOST}:
        problems.append("an order that was rolled back left a job")
    sending = [job_id for group in load.groups if group.sends for job_id in group.ids]
    sent = Message.objects.filter(job_id__in=sending).count()
    if sent != len(sending):
        problems.append(f"{len(sending)} jobs send a message each, but there are {sent} messages")
    orders = Order.objects.filter(pk__in=[order.pk for order in load.orders])
    awarded = sum(POINTS for group in load.groups if group.gives_points for _ in group.ids)
    if (points := orders.aggregate(Sum("points"))["points__sum"]) != awarded:
        problems.append(f"{awarded} points should be on the orders, but there are {points}")
    return problems


def _ending(state: str, attempt: int) -> Ending:
    match state:
        case "completed":
            return Ending.RETRIED if attempt > 1 else Ending.COMPLETED
        case "failed" | "cancelled" | "scheduled":
            return Ending(state)
        case _:
            return Ending.UNFINISHED
