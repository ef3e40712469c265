"""Arguments as people write them."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import load_command_class
from django.test import override_settings

from awa_django.management.arguments import duration, instant, job_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", timedelta(seconds=90)),
        ("0.5", timedelta(milliseconds=500)),
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("15 min", timedelta(minutes=15)),
        ("1h30m", timedelta(minutes=90)),
        ("2d 12h", timedelta(hours=60)),
    ],
)
def test_durations(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "soon", "5w", "1h30", "1e9", "nan", "40000d", "9" * 400, "\u0663"]
)
def test_bad_durations_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="duration"):
        duration(text)


@override_settings(TIME_ZONE="Europe/Berlin", USE_TZ=True)
def test_instants_are_local_unless_they_say() -> None:
    assert instant("2026-01-31T18:30") == datetime(2026, 1, 31, 17, 30, tzinfo=UTC)
    assert instant("2026-01-31 18:30:00+00:00") == datetime(2026, 1, 31, 18, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-02-31T10:00", "18:30", "2026-01-31T25:00"])
def test_bad_instants_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="instant"):
        instant(text)


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.0", "", "9" * 30, "²"])
def test_bad_ids_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="id of a job"):
        job_id(text)


@pytest.mark.parametrize("verb", [("awa_jobs", "list"), ("awa_queues", "list"), ("awa_cron", "list")])
def test_options_of_django_may_stand_behind_a_verb(verb: tuple[str, str]) -> None:
    name, first = verb
    options = ["--settings", "site.live", "--pythonpath", "src", "-v", "0", "--traceback", "--no-color"]
    parser = load_command_class("awa_django", name).create_parser("manage.py", name)
    parsed: Namespace = parser.parse_args([first, *options])
    assert vars(parsed) == vars(parser.parse_args([*options, first]))
    assert (parsed.settings, parsed.verbosity, parsed.traceback) == ("site.live", 0, True)
