"""docs/performance.md and its plots are what docs/performance.json says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import plots, report
from benchmarks.__main__ import DOCS

SVG = "{http://www.w3.org/2000/svg}"
IMAGES = DOCS.parent / "images"
RUN: dict[str, Any] = json.loads(DOCS.with_suffix(".json").read_text(encoding="utf-8"))


def scenario(*rounds: float) -> dict[str, Any]:
    names = ["floor", "awa", "pgqueuer, 2 processes", "bare COPY", "broken <&>"]
    values = {"median": 200.0, "least": min(rounds), "most": max(rounds), "to_first": 1.0, "rounds": rounds}
    return {
        "name": "drain",
        "title": "Drain <20> & more",
        "contenders": [
            {"name": name, "failure": "", "units": {} if "broken" in name else {"jobs/s": values}}
            for name in names
        ],
    }


def test_the_page_has_the_tables_of_the_json() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert report.into_page(page, RUN) == page, "make bench ARGS='--redraw'"


def test_the_plots_are_those_of_the_json() -> None:
    drawn = plots.draw_all(RUN)
    assert drawn.keys() == {report.plot_name(name) for name in report.PLOTTED}
    stored = {path.name: path.read_text(encoding="utf-8") for path in IMAGES.glob(report.plot_name("*"))}
    assert stored == drawn, "make bench ARGS='--redraw'"


@pytest.mark.parametrize("name", sorted(report.PLOTTED))
def test_a_plot_tells_each_median_within_its_frame(name: str) -> None:
    (told,) = [each for each in RUN["scenarios"] if each["name"] == name]
    root = ET.fromstring(plots.draw(told))
    width, height = map(float, root.get("viewBox", "").split()[2:])
    written = [text.text for text in root.iter(f"{SVG}text")]
    bars = list(plots.bars_of(told))
    assert len(bars) == len(root.findall(f"{SVG}rect")) - 1 > 1
    for bar in bars:
        assert {bar.name, report.number(bar.median)} <= set(written)
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(key, 0)) for key in ("x", "y", "width", "height"))
        assert (x + w <= width, y + h <= height) == (True, True)


def test_lengths_are_in_proportion_and_ours_has_its_colour() -> None:
    told = scenario(100.0, 400.0)
    told["contenders"][1]["units"]["jobs/s"] = {"median": 50.0, "least": 50.0, "most": 50.0, "rounds": [50.0]}
    root = ET.fromstring(plots.draw(told))  # what is in a title is escaped, or this raises
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") != "page"]
    assert [bar.get("class") for bar in bars] == ["other", "ours", "other", "other"]
    assert [float(bar.get("width", 0)) for bar in bars] == [215.0, 53.8, 215.0, 215.0]
    assert len(root.findall(f"{SVG}path")) == 3  # no range of a single round


def test_plots_of_scenarios_that_are_gone_go(tmp_path: Path) -> None:
    (tmp_path / report.plot_name("old")).write_text("")
    (tmp_path / "shop.png").write_text("")
    plots.write_all({"scenarios": [scenario(1.0)]}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["performance-drain.svg", "shop.png"]
