"""Tables for the terminal and the documentation, from the JSON of a run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.goals import Verdict
from benchmarks.harness import Result

HEADER = ("", "unit", "median", "range", "to the first")
GOALS_HEADER = ("what", "goal", "measured", "")
# Between these lines a page carries the tables of a run.
BEGIN, END = "<!-- results: written by make bench -->", "<!-- end of results -->"
# Scenarios that are told by bars too, and of which units.
PLOTTED = {
    "drain": ("jobs/s",),
    "pickup": ("p50 ms", "p99 ms"),
    "deferred": ("jobs/s",),
    "history": ("jobs/s",),
    "queues": ("jobs/s",),
    "due-burst": ("jobs/s",),
    "pinned": ("jobs/s at first", "jobs/s at last"),
    "processor": ("us/job in the worker", "us/job in the server"),
}


def as_json(
    machine: Mapping[str, object], results: Sequence[Result], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """All of a run, each round included."""
    return {
        "machine": dict(machine),
        "scenarios": [_scenario(result, machine) for result in results],
        "goals": [asdict(verdict) for verdict in verdicts],
    }


def merged(earlier: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier run with those scenarios (and what they say of the goals) that ``part`` has taken anew.

    Raises: ValueError when the two were not taken on the same machine and server.
    """
    for name in ("cores", "processor", "memory_gib", "postgresql", "quick"):
        if earlier["machine"][name] != part["machine"][name]:
            raise ValueError(
                f"{name}: {part['machine'][name]!r} is not {earlier['machine'][name]!r}: run all"
            )
    anew = {scenario["name"]: scenario for scenario in part["scenarios"]}
    before = {goal["what"]: goal for goal in earlier["goals"]}
    known = {scenario["name"] for scenario in earlier["scenarios"]}
    return {
        "machine": earlier["machine"],
        "scenarios": [
            *(anew.get(scenario["name"], scenario) for scenario in earlier["scenarios"]),
            *(scenario for name, scenario in anew.items() if name not in known),
        ],
        "goals": [
            before.get(goal["what"], goal) if goal["measured"] is None else goal for goal in part["goals"]
        ],
    }


def _scenario(result: Result, machine: Mapping[str, object]) -> dict[str, Any]:
    base = next(iter(result.series))
    return {
        "name": result.name,
        "title": result.title,
        "taken_at": machine["taken_at"],
        "commit": machine["commit"],
        "contenders": [
            {
                "name": name,
                "failure": series.failure,
                "units": {
                    unit: {
                        "median": statistics.median(values),
                        "least": min(values),
                        "most": max(values),
                        "to_first": result.ratio(name, base, unit),
                        "rounds": values,
                    }
                    for unit, values in series.values.items()
                },
            }
            for name, series in result.series.items()
        ],
    }


def show(console: Console, run: Mapping[str, Any]) -> None:
    """The tables in the terminal."""
    for scenario in run["scenarios"]:
        _print(console, scenario["title"], HEADER, scenario_rows(scenario))
    _print(console, "Goals", GOALS_HEADER, goal_rows(run))


def scenario_rows(scenario: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """A row for each contender and unit."""
    for contender in scenario["contenders"]:
        if contender["failure"]:
            yield contender["name"], "", "failed", contender["failure"].splitlines()[0], ""
        for unit, found in contender["units"].items():
            spread = (
                "" if len(found["rounds"]) == 1 else f"{number(found['least'])} - {number(found['most'])}"
            )
            to_first = "" if found["to_first"] is None else f"{found['to_first']:.2f}"
            yield contender["name"], unit, number(found["median"]), spread, to_first


def goal_rows(run: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for goal in run["goals"]:
        measured = goal["measured"]
        word = {True: "met", False: "NOT MET", None: "not measured"}[goal["is_met"]]
        yield goal["what"], goal["goal"], "" if measured is None else number(measured), word


def number(value: float) -> str:
    """With as many digits as say something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2g}" if abs(value) < 0.1 else f"{value:.2f}"


def into_page(page: str, run: Mapping[str, Any]) -> str:
    """The page with the tables of this run between its two marks, whatever was there before."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{markdown(run)}\n{END}{after}"


def markdown(run: Mapping[str, Any]) -> str:
    """What was measured, on what, and what that says of the goals."""
    parts = [_taken_on(run["machine"]), _markdown_table("Goals", GOALS_HEADER, goal_rows(run))]
    for each in run["scenarios"]:
        plot = (
            f"![The medians as bars](images/{plot_name(each['name'])})\n\n" if each["name"] in PLOTTED else ""
        )
        parts.append(_markdown_table(each["title"], HEADER, scenario_rows(each), plot))
        if each.get("taken_at", run["machine"]["taken_at"]) != run["machine"]["taken_at"]:
            parts.append(f"Taken anew at {each['taken_at']} from {each['commit']}.\n")
    return "\n".join(parts)


def _taken_on(machine: Mapping[str, Any]) -> str:
    server = dict(machine["postgresql"])
    version = server.pop("server_version")
    settings = ", ".join(f"{name} {value}" for name, value in server.items())
    quick = "a quick run (its sizes say little), " if machine["quick"] else ""
    return (
        f"Taken at {machine['taken_at']} from {machine['commit']}: {quick}up to {machine['rounds']} rounds "
        f"in {machine['minutes']} minutes, on {machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory_gib']} GiB, PostgreSQL {version} ({settings}), Python {machine['python']}, "
        f"Django {machine['django']}, psycopg {machine['psycopg']}.\n"
    )


def plot_name(scenario: str) -> str:
    """The file of a scenario's plot, in docs/images."""
    return f"performance-{scenario}.svg"


def _markdown_table(
    title: str, header: Sequence[str], rows: Iterator[tuple[str, ...]], plot: str = ""
) -> str:
    lines = [header, ["---", "---", *["---:"] * (len(header) - 2)], *rows]
    table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
    return f"### {title}\n\n{plot}{table}\n"


def _print(console: Console, title: str, header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> None:
    table = Table(title=title, title_justify="left")
    for place, name in enumerate(header):
        table.add_column(name, justify="left" if place < 2 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
