"""The table of all pages, for the terminal and for docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.size.measure import LONGEST_MS, MOST_STATEMENTS, Timing

HEADER = ("page", "first, ms", "median, ms", "processor, ms", "statements", "most rows met by")
# Between these lines the page of the documentation carries the table.
BEGIN, END = "<!-- pages at size: written by make size -->", "<!-- end of pages at size -->"


def show(console: Console, timings: Sequence[Timing]) -> None:
    table = Table(*HEADER)
    for timing in timings:
        style = "red" if timing.complaint else ""
        table.add_row(*_cells(timing), style=style)
    console.print(table)


def complaints(timings: Sequence[Timing]) -> list[str]:
    return [f"{timing.page}: {timing.complaint}" for timing in timings if timing.complaint]


def into_page(path: Path, timings: Sequence[Timing], told: str) -> None:
    """Put the table between its two marks, whatever was there before."""
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n\n{markdown(timings, told)}\n{END}{after}", encoding="utf-8")


def markdown(timings: Sequence[Timing], told: str) -> str:
    wrong = complaints(timings)
    slowest = max(timings, key=lambda timing: (not timing.is_long, timing.median))
    lines = [
        told,
        "",
        f"{len(timings)} pages and commands; the slowest takes {slowest.median:,.0f} ms ({slowest.page}). "
        f"The goal is at most {LONGEST_MS:,.0f} ms and {MOST_STATEMENTS} statements: "
        + ("met by all." if not wrong else f"missed by {len(wrong)}."),
        "",
        f"| {' | '.join(HEADER)} |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
        *(f"| {' | '.join(cell.replace('|', '/') for cell in _cells(timing))} |" for timing in timings),
    ]
    return "\n".join([*lines, *(["", *(f"- Missed: {line}" for line in wrong)] if wrong else []), ""])


def _cells(timing: Timing) -> tuple[str, ...]:
    return (
        timing.page,
        f"{timing.first:,.0f}",
        f"{timing.median:,.0f}",
        f"{timing.processor:,.0f}",
        str(timing.statements),
        timing.failure or timing.worst,
    )
