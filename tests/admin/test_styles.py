"""What the style sheets must leave to the reader."""

from __future__ import annotations

from pathlib import Path

import pytest

import awa_django

SHEETS = sorted((Path(awa_django.__file__).parent / "static" / "awa").glob("*.css"))


def test_there_are_sheets() -> None:
    assert len(SHEETS) >= 4


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.stem)
def test_nothing_moves_and_no_focus_is_hidden(sheet: Path) -> None:
    text = sheet.read_text(encoding="utf-8")
    for moves in ("transition", "animation", "scroll-behavior", "@keyframes"):
        assert moves not in text, moves
    assert "outline: none" not in text
    assert "outline: 0" not in text
