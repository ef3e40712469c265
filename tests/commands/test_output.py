"""Hostile text forges no output, and each way of printing says the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from django.core.management.base import OutputWrapper

from awa_django.logs import printable
from awa_django.management import output
from awa_django.management.output import Cell, Output, Raw, duration, number, shorten
from tests.commands.conftest import Terminal

HOSTILE = "\x1b[31mred\x1b[0m\nforged line\r\u202eevil\u2028\x00[red]markup[/red]:smile:\udc80"


@pytest.fixture(params=["plain", "plain terminal", "rich terminal"])
def screen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Output, StringIO]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(output, "HAS_RICH", "rich" in request.param)
    stream = Terminal() if "terminal" in request.param else StringIO()
    return Output(OutputWrapper(stream)), stream


def test_table_shows_hostile_text_as_text(screen: tuple[Output, StringIO]) -> None:
    out, stream = screen
    out.table(("NAME", "COUNT"), [(Cell(HOSTILE), number(3)), ("plain", number(12_345))])
    text = stream.getvalue()
    assert "\x1b[31mred" not in text
    assert r"\x1b[31mred\x1b[0m\nforged line\r\u202eevil\u2028\x00[red]markup[/red]:smile:\udc80" in text
    assert not any(line.startswith("forged") for line in text.splitlines())
    assert "12,345" in text


def test_lines_facts_and_blocks_show_hostile_text_as_text(screen: tuple[Output, StringIO]) -> None:
    out, stream = screen
    out.line(HOSTILE, "bad")
    out.facts([(HOSTILE, HOSTILE), ("queue", Cell("mail", "good"))])
    out.block(HOSTILE)
    text = stream.getvalue()
    assert "\x1b[31mred" not in text
    assert not any(line.startswith(("forged", "evil")) for line in text.splitlines())
    assert "[red]markup[/red]" in text


def test_colours_need_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)

    def printed(*, terminal: bool = False, no_color: bool = False, force_color: bool = False) -> str:
        stream = Terminal() if terminal else StringIO()
        out = Output(OutputWrapper(stream), no_color=no_color, force_color=force_color)
        out.table(("A",), [(Cell("x", "bad"),)], title="T")
        out.line("y", "good")
        return stream.getvalue()

    assert "\x1b" not in printed()
    assert "\x1b" in printed(terminal=True)
    assert "\x1b" in printed(force_color=True)
    assert "\x1b" not in printed(terminal=True, no_color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed(terminal=True)


def test_columns_stand_under_each_other() -> None:
    stream = StringIO()
    Output(OutputWrapper(stream)).table(
        ("QUEUE", "JOBS"), [("mail", number(5)), ("a longer name", number(12_000, cap=10_000))]
    )
    assert stream.getvalue().splitlines() == [
        "QUEUE                 JOBS",
        "mail                     5",
        "a longer name  over 10,000",
    ]


def test_a_table_without_rows_says_so() -> None:
    stream = StringIO()
    Output(OutputWrapper(stream)).table(("QUEUE",), [], title="Queues")
    assert stream.getvalue() == "Queues\n  none\n"


def test_a_poor_terminal_gets_the_numbers_of_its_missing_characters() -> None:
    buffer = BytesIO()
    stream = TextIOWrapper(buffer, encoding="ascii")
    Output(OutputWrapper(stream)).line("café")
    stream.flush()
    assert buffer.getvalue() == b"caf\\xe9\n"


def test_document_keeps_raw_json_as_it_is() -> None:
    stream = StringIO()
    raw = '{"big": 123456789012345678901234567890, "exact": 0.10}'
    when = datetime(2026, 1, 31, 18, 30, tzinfo=UTC)
    Output(OutputWrapper(stream)).document({"args": Raw(raw), "at": when, "name": "\u202e\x1b"})
    text = stream.getvalue()
    assert raw in text
    assert json.loads(text)["at"] == "2026-01-31T18:30:00+00:00"
    assert "\u202e" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "250 ms"),
        (1.4, "1 s"),
        (59, "59 s"),
        (60, "1 min"),
        (7_300, "2 h"),
        (2e9, "23,148 d"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert shorten(seconds) == text
    assert duration(seconds).text == text


def test_nothing_waits_is_a_dash() -> None:
    assert duration(None).text == "-"


def test_ordinary_text_stays_as_it_is() -> None:
    assert printable("Grüße, 世界 [x] \\n") == "Grüße, 世界 [x] \\n"
