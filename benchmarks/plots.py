"""Plots of a run for the documentation: an SVG for each scenario that bars tell sooner than numbers.

Drawn from the JSON alone, without a library: the same JSON makes the same bytes. The colours are the
drawing's own, for light and for dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from benchmarks.peer import PEERS
from benchmarks.report import PLOTTED, number, plot_name

# Pixels: the whole, the names, the bars, and from one bar to the next.
WIDTH, NAMES, BARS, STEP = 820, 250, 430, 30
TOP, BAR = 62, 18
ROLE = 'role="img" aria-labelledby="title desc"'
STYLE = """
  .page { fill: #ffffff } text { fill: #1c2530; font: 14px system-ui, sans-serif } .title { font-weight: 600; font-size: 16px }
  .ours { fill: #1f6fbf } .other { fill: #9aa7b4 } .range { stroke: #1c2530; stroke-width: 1.5; fill: none } .unit { fill: #46525f }
  @media (prefers-color-scheme: dark) {
    .page { fill: #15191e } text { fill: #eef2f6 } .ours { fill: #6fb3f2 } .other { fill: #64717f }
    .range { stroke: #eef2f6 } .unit { fill: #bac5d0 }
  }
"""  # noqa: E501


class Bar(NamedTuple):
    """One line of a plot; ``least`` and ``most`` of its rounds."""

    name: str
    median: float
    least: float
    most: float
    is_ours: bool


def write_all(run: Mapping[str, Any], directory: Path) -> None:
    """The plots of this run into the directory; those of scenarios that it does not have go."""
    plots = draw_all(run)
    for path in directory.glob(plot_name("*")):
        if path.name not in plots:
            path.unlink()
    for name, drawing in plots.items():
        (directory / name).write_text(drawing, encoding="utf-8")


def draw_all(run: Mapping[str, Any]) -> dict[str, str]:
    """File name -> SVG."""
    return {
        plot_name(scenario["name"]): draw(scenario)
        for scenario in run["scenarios"]
        if scenario["name"] in PLOTTED
    }


def bars_of(scenario: Mapping[str, Any]) -> Iterator[Bar]:
    """Of each contender that did not fail, a bar for each unit that is plotted."""
    units = PLOTTED[scenario["name"]]
    for contender in scenario["contenders"]:
        for unit in units:
            found = contender["units"].get(unit)
            if found is not None:
                name = contender["name"] if len(units) == 1 else f"{contender['name']}, {_short(unit)}"
                median, least, most = (found[each] for each in ("median", "least", "most"))
                yield Bar(name, median, least, most, _is_ours(contender["name"]))


def draw(scenario: Mapping[str, Any]) -> str:
    """The plot of one scenario."""
    bars = list(bars_of(scenario))
    unit = _common(PLOTTED[scenario["name"]])
    longest = max((bar.most for bar in bars), default=0.0) or 1.0
    height = TOP + STEP * len(bars) + 12
    rounds = ": median, and the range of the rounds" if any(bar.least < bar.most for bar in bars) else ""
    told = "; ".join(f"{bar.name}: {number(bar.median)}" for bar in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {ROLE}>',
        f'<title id="title">{escape(scenario["title"])}</title>',
        f'<desc id="desc">{escape(unit)}. {escape(told)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
        f'<text class="title" x="16" y="28">{escape(scenario["title"])}</text>',
        f'<text class="unit" x="16" y="48">{escape(unit)}{escape(rounds)}</text>',
    ]
    for place, bar in enumerate(bars):
        lines += _draw_bar(bar, TOP + STEP * place, BARS / longest)
    return "\n".join([*lines, "</svg>", ""])


def _draw_bar(bar: Bar, top: int, scale: float) -> Iterator[str]:
    middle = top + BAR // 2
    length = max(bar.median * scale, 1.0)
    kind = "ours" if bar.is_ours else "other"
    yield f'<text x="{NAMES - 10}" y="{middle + 5}" text-anchor="end">{escape(bar.name)}</text>'
    yield f'<rect class="{kind}" x="{NAMES}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"/>'
    end = length
    if bar.least < bar.most:
        least, end = bar.least * scale, max(bar.most * scale, length)
        yield (
            f'<path class="range" d="M{NAMES + least:.1f} {middle}H{NAMES + bar.most * scale:.1f}'
            f"M{NAMES + least:.1f} {middle - 4}v8M{NAMES + bar.most * scale:.1f} {middle - 4}v8"
            '"/>'
        )
    yield f'<text x="{NAMES + end + 10:.1f}" y="{middle + 5}">{number(bar.median)}</text>'


def _is_ours(contender: str) -> bool:
    return contender.partition(",")[0] not in {*PEERS, "floor"} and not contender.startswith("bare ")


def _common(units: tuple[str, ...]) -> str:
    """What several units have in common: ``jobs/s at first`` and ``jobs/s at last`` are jobs/s."""
    words = [unit.split() for unit in units]
    if len(units) == 1:
        return units[0]
    return next(word for word in words[0] if all(word in each for each in words))


def _short(unit: str) -> str:
    """What tells a unit from the others of its plot: ``at first``, ``in the worker``, ``p50``."""
    common = _common(next(units for units in PLOTTED.values() if unit in units))
    return " ".join(word for word in unit.split() if word != common)
