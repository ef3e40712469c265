"""The catalogue of faults: which test injects which, and what was seen; written into docs/reliability.md.

A test says ``@pytest.mark.fault("F1", injected="kill -9 of a child with 20 jobs running")`` and tells
the fixture ``observe`` what it saw. ``pytest --fault-report FILE`` writes the table into FILE, between
its two marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

_ROW = re.compile(r"^\| (?P<fault>[FU]\d+) \| (?P<injected>.*?) \| .*\|$", re.MULTILINE)
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
_SEEN = pytest.StashKey[list[str]]()

Observe = Callable[[str], None]


@dataclass(slots=True)
class Injected:
    """One test of one fault, in all its cases."""

    injected: str
    test: str
    seen: list[str] = field(default_factory=list)
    outcome: str = "held"
    count: int = 0

    def add(self, seen: str, outcome: str) -> None:
        """One more case: what several saw alike is told once, and a failure of one is that of all."""
        self.count += 1
        if seen not in self.seen:
            self.seen.append(seen)
        if outcome != "held" and self.outcome != "FAILED":
            self.outcome = outcome

    @property
    def verdict(self) -> str:
        return self.outcome if self.count == 1 else f"{self.outcome} ({self.count} cases)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-report", metavar="FILE", help="write what the fault tests saw into FILE")
    parser.addoption(
        "--fault-report-merge", action="store_true", help="keep the rows of FILE whose tests did not run"
    )


@pytest.fixture
def observe(request: pytest.FixtureRequest) -> Observe:
    """``observe("20 jobs ran again after 1.3 s")``: a line of the fault's row in the report."""
    seen: list[str] = request.node.stash.setdefault(_SEEN, [])
    return seen.append


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # Over xdist only the report travels, so what was seen goes along in its properties.
    seen: list[str] = item.stash.setdefault(_SEEN, [])
    for mark in item.iter_markers("fault"):
        if report.when == "call" or report.outcome != "passed":
            row = (mark.args[0], mark.kwargs["injected"], "; ".join(seen) or _claim(item))
            report.user_properties.append(("fault", row))
    return report


def _claim(item: pytest.Item) -> str:
    """What a test that observes nothing holds true: its name says it."""
    return item.name.partition("[")[0].removeprefix("test_").replace("_", " ")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _reports.append(report)


_reports: list[pytest.TestReport] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = session.config.getoption("--fault-report")
    if target and not hasattr(session.config, "workerinput"):
        merge = session.config.getoption("--fault-report-merge")
        write(Path(target), rows(_reports), merge=merge)


def rows(reports: list[pytest.TestReport]) -> dict[str, list[Injected]]:
    """Fault id -> its tests, in the order of the ids."""
    found: dict[str, dict[tuple[str, str], Injected]] = {}
    for report in reports:
        for name, value in report.user_properties:
            if name == "fault" and (report.when == "call" or report.outcome != "passed"):
                fault, injected, seen = cast("tuple[str, str, str]", value)
                outcome = {"passed": "held", "failed": "FAILED"}.get(report.outcome, report.outcome)
                test = report.nodeid.partition("[")[0]
                row = found.setdefault(fault, {}).setdefault((injected, test), Injected(injected, test))
                row.add(seen, outcome)
    return {fault: list(tests.values()) for fault, tests in found.items()}


def write(target: Path, found: dict[str, list[Injected]], *, merge: bool = False) -> None:
    """Replace what stands between the marks, in the order of the ids."""
    text = target.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    lines = {
        (fault, _cell(each.injected)): (
            f"| {fault} | {_cell(each.injected)} | {_cell('; '.join(each.seen))} | {each.verdict} |"
        )
        for fault, tests in found.items()
        for each in tests
    }
    if merge:
        for match in _ROW.finditer(old):
            lines.setdefault((match["fault"], match["injected"]), match.group())
    ordered = [lines[key] for key in sorted(lines, key=_place)]
    table = "\n".join(["| id | injected | seen | |", "|---|---|---|---|", *ordered])
    target.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def _place(key: tuple[str, str]) -> tuple[str, int, str]:
    """F2 before F10, cases after faults."""
    fault, injected = key
    return fault[0], int(re.sub(r"\D", "", fault) or 0), injected


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
