"""What commands print: tables, facts and lines, or one JSON document; no text of a row forges output.

On a terminal, with the extra ``rich``, rich draws them; elsewhere they are plain aligned text.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

from django.core.management.base import OutputWrapper
from django.utils import termcolors, timezone

from awa_django.logs import printable

try:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ImportError:  # the extra is not installed
    HAS_RICH = False
else:
    HAS_RICH = True

Style = Literal["", "good", "warning", "bad", "dim", "head"]

_ANSI: dict[Style, dict[str, Any]] = {
    "good": {"fg": "green"},
    "warning": {"fg": "yellow"},
    "bad": {"fg": "red", "opts": ("bold",)},
    "dim": {"fg": "cyan"},
    "head": {"opts": ("bold",)},
}
_RICH: dict[Style, str] = {
    "": "",
    "good": "green",
    "warning": "yellow",
    "bad": "bold red",
    "dim": "dim",
    "head": "bold",
}
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and how it is shown. Numbers stand at the right."""

    text: str
    style: Style = ""
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Raw:
    """JSON text that goes into a document as it stands: no number of it is rounded, no depth too deep."""

    text: str


class Output:
    """Prints to ``stdout``, in colours on a terminal (or ``force_color``) unless ``no_color`` or NO_COLOR."""

    def __init__(self, stdout: OutputWrapper, *, no_color: bool = False, force_color: bool = False) -> None:
        self._stdout = stdout
        self.is_terminal = stdout.isatty() or force_color
        self._has_colors = self.is_terminal and not no_color and not os.environ.get("NO_COLOR")
        self._encoding = getattr(stdout, "encoding", None) or "utf-8"

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Cell | str]], *, title: str = "") -> None:
        """Print rows under their columns; nothing but the title and ``none`` when there are no rows."""
        cells = [[_cell(cell) for cell in row] for row in rows]
        if title:
            self.line(title, "head")
        if not cells:
            self.line("  none" if title else "none", "dim")
        elif HAS_RICH and self.is_terminal:
            self._rich_table(columns, cells)
        else:
            self._plain_table(columns, cells)

    def facts(self, facts: Iterable[tuple[str, Cell | str]]) -> None:
        """Print values behind their names."""
        known = [(printable(name), _cell(value)) for name, value in facts]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            self._write(f"{self._styled(name.ljust(width), 'dim')}  {self._styled(value.text, value.style)}")

    def line(self, text: str, style: Style = "") -> None:
        """Print one line, whatever is in the text."""
        self._write(self._styled(printable(text), style))

    def block(self, text: str) -> None:
        """Print a text of several lines, each indented, so that none of them looks like ours."""
        for line in text.splitlines():
            self._write(f"    {printable(line)}")

    def document(self, value: object) -> None:
        """Print one JSON document: instants in UTC, characters beyond ASCII escaped."""
        raws: dict[str, str] = {}

        def encode(item: object) -> str:
            if isinstance(item, Raw):
                mark = secrets.token_hex(16)
                raws[mark] = item.text
                return mark
            if isinstance(item, datetime):
                return item.astimezone(timezone.get_fixed_timezone(0)).isoformat()
            if isinstance(item, date):
                return item.isoformat()
            raise TypeError(f"{item!r} does not belong into a document")

        text = json.dumps(value, indent=2, default=encode)
        for mark, raw in raws.items():
            text = text.replace(f'"{mark}"', raw)
        self._write(text)

    def clear(self) -> None:
        """Begin a new screen, on a terminal."""
        if self.is_terminal:
            self._stdout.write("\x1b[H\x1b[2J", ending="")

    def _rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        table = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
        for name, cell in zip(columns, rows[0], strict=True):
            table.add_column(Text(name), justify="right" if cell.is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell.text, style=_RICH[cell.style]) for cell in row))
        drawn = io.StringIO()
        Console(
            file=drawn,
            width=shutil.get_terminal_size((120, 40)).columns,
            force_terminal=True,
            no_color=not self._has_colors,
            color_system="standard" if self._has_colors else None,
            highlight=False,
            legacy_windows=False,
            safe_box=True,
        ).print(table)
        for line in drawn.getvalue().splitlines():
            if line.strip():
                self._write(line)

    def _plain_table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        widths = [
            max(len(name), *(len(row[place].text) for row in rows)) for place, name in enumerate(columns)
        ]
        numbers = [cell.is_number for cell in rows[0]]

        def aligned(texts: Iterable[str]) -> list[str]:
            return [
                text.rjust(width) if is_number else text.ljust(width)
                for text, width, is_number in zip(texts, widths, numbers, strict=True)
            ]

        self._write(self._styled("  ".join(aligned(columns)).rstrip(), "head"))
        for row in rows:
            texts = aligned(cell.text for cell in row)
            styled = (self._styled(text, cell.style) for text, cell in zip(texts, row, strict=True))
            self._write("  ".join(styled).rstrip())

    def _styled(self, text: str, style: Style) -> str:
        return termcolors.colorize(text, **_ANSI[style]) if style and self._has_colors else text

    def _write(self, text: str) -> None:
        # A terminal that knows fewer characters gets their numbers, and not an error.
        self._stdout.write(text.encode(self._encoding, "backslashreplace").decode(self._encoding))


def number(value: int, *, cap: int | None = None, style: Style = "") -> Cell:
    """A count; beyond the cap of its statement it says ``over``."""
    shown = f"over {cap:,}" if cap is not None and value > cap else f"{value:,}"
    return Cell(shown, style if value else "", is_number=True)


def duration(seconds: float | None, *, style: Style = "") -> Cell:
    """A duration in its largest unit; a dash for none."""
    if seconds is None:
        return Cell("-", is_number=True)
    return Cell(shorten(seconds), style, is_number=True)


def shorten(seconds: float) -> str:
    """A duration as people say it: ``250 ms``, ``42 s``, ``3 min``."""
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{int(seconds // length):,} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 or not seconds else f"{seconds * 1000:.0f} ms"


def instant(value: datetime | None) -> str:
    """An instant in the current time zone; a dash for none."""
    return "-" if value is None else f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S %Z}"


def _cell(value: Cell | str) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value)
    return Cell(printable(cell.text), cell.style, cell.is_number)
