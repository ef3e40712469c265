"""The tables of docs/settings.md say what the code and the example project do."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from awa_django import conf
from awa_django.conf import AwaSettings, Retention, get_settings
from awa_django.retry import RetryPolicy
from tests.conftest import PROJECT_DIR
from tests.test_docs import blocks

PAGE = "docs/settings.md"
TEXT = (PROJECT_DIR / PAGE).read_text(encoding="utf-8")
EXAMPLE = PROJECT_DIR / "example_project" / "settings.py"


def shown(value: object) -> str:
    """A default as the table has it."""
    match value:
        case Retention(by_state=by_state):
            return ", ".join(f"{state} {duration(kept)}" for state, kept in by_state.items())
        case timedelta():
            return duration(value)
        case conf.MEBIBYTE:
            return "1 MiB"
        case RetryPolicy():
            assert value == type(value)(), "its own defaults"
            return f"`{type(value).__name__}()`"
        case str():
            return f'`"{value}"`'
        case tuple():
            return ", ".join(map(str, value)) or "`[]`"
        case Mapping():
            return f"`{value!r}`"
        case _:
            return f"`{value}`"


def duration(value: timedelta) -> str:
    if value > timedelta(days=1):
        return f"{value / timedelta(days=1):g} days"
    if value >= timedelta(hours=1):
        return f"{value / timedelta(hours=1):g} h"
    if value < timedelta(seconds=1):
        return f"{value / timedelta(milliseconds=1):g} ms"
    return f"{value / timedelta(seconds=1):g} s"


def test_the_table_has_every_key_with_its_default() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \| [^|]+ \|$", TEXT, re.MULTILINE)
    table = TEXT[TEXT.index("| key |") : TEXT.index("## From the environment")]
    documented = {key: default for key, default in rows if f"| `{key}` |" in table}
    defaults = AwaSettings()
    assert documented == {
        name.upper(): shown(getattr(defaults, name)) for name in AwaSettings.__dataclass_fields__
    }


VARIABLES = {
    "CONN_MAX_AGE": "5",
    "DISABLE_SERVER_SIDE_CURSORS": "1",
    "AWA_QUEUES": "mail,bulk",
    "AWA_MAX_ATTEMPTS": "3",
    "AWA_TIMEOUT": "9.5",
    "AWA_SHUTDOWN_TIMEOUT": "7",
    "AWA_KEEP_COMPLETED": "0",
    "AWA_KEEP_FAILED": "60",
    "AWA_LISTEN_URL": "postgres://direct/mysite",
    "AWA_HEALTH": "127.0.0.1:8099",
}


def read_example(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> dict[str, Any]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return runpy.run_path(str(EXAMPLE))


def test_the_example_without_variables_has_the_defaults(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.AWA = read_example(monkeypatch, {})["AWA"]
    assert get_settings() == AwaSettings()


def test_the_example_reads_each_variable(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    example = read_example(monkeypatch, VARIABLES)
    database = example["DATABASES"]["default"]
    assert (database["CONN_MAX_AGE"], database["DISABLE_SERVER_SIDE_CURSORS"]) == (5, True)
    settings.AWA = example["AWA"]
    assert get_settings() == AwaSettings(
        queues=("mail", "bulk"),
        max_attempts=3,
        timeout=timedelta(seconds=9.5),
        shutdown_timeout=timedelta(seconds=7),
        retention=Retention(
            by_state={
                **Retention().by_state,
                "completed": timedelta(0),
                "failed": timedelta(seconds=60),
            }
        ),
        listen_url="postgres://direct/mysite",
        health="127.0.0.1:8099",
    )


def test_the_variables_of_the_table_are_those_of_the_example() -> None:
    table = TEXT[TEXT.index("| variable |") : TEXT.index("```python\nimport environ")]
    first_cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    documented = {name for cell in first_cells for name in re.findall(r"`([A-Z_]+)`", cell)}
    read = set(re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', EXAMPLE.read_text(encoding="utf-8")))
    assert documented == read


def test_the_settings_shown_are_accepted(settings: Any) -> None:
    for block in blocks(PAGE, "python"):
        namespace: dict[str, Any] = {"timedelta": timedelta}
        exec(block, namespace)
        settings.AWA = namespace["AWA"]
        get_settings()  # or it raises
