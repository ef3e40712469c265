"""`make docs` fails on a link that leads nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT_DIR

GUIDE = """\
# The guide

## What `enqueue` does, exactly

## Twice

## Twice
"""


def check(root: Path, readme: str) -> tuple[int, list[str]]:
    (root / "docs" / "images").mkdir(parents=True, exist_ok=True)
    (root / "docs" / "guide.md").write_text(GUIDE)
    (root / "docs" / "images" / "hot jobs.png").touch()
    (root / "README.md").write_text(readme)
    done = subprocess.run(
        [sys.executable, PROJECT_DIR / "scripts" / "check_docs.py", root], capture_output=True, text=True
    )
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    "link",
    [
        "[a](docs/guide.md)",
        "[a](./docs/guide.md#what-enqueue-does-exactly)",
        "[a](docs/guide.md#twice-1)",
        "![a](docs/images/hot%20jobs.png 'title')",
        "[a](/docs/guide.md)",
        "[a][ref]\n\n[ref]: docs/guide.md",
        "[a](https://example.org/none) [b](mailto:a@example.org)",
        "`[a](none.md)`",
        "```\n[a](none.md)\n```",
        "# Here\n[a](#here)",
    ],
)
def test_links_that_resolve_are_accepted(tmp_path: Path, link: str) -> None:
    assert check(tmp_path, link) == (0, ["2 pages, no broken link"])


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[a](docs/none.md)", "README.md: docs/none.md: no such file"),
        ("![a](docs/images/none.png)", "README.md: docs/images/none.png: no such file"),
        ("[a](docs/guide.md#none)", "README.md: docs/guide.md#none: no such heading"),
        ("[a](docs/guide.md#twice-2)", "README.md: docs/guide.md#twice-2: no such heading"),
        ("[a](#none)", "README.md: #none: no such heading"),
        ("[a][ref]\n\n[ref]: docs/none.md", "README.md: docs/none.md: no such file"),
        ("[![a](docs/none.png)](docs/guide.md)", "README.md: docs/none.png: no such file"),
    ],
)
def test_broken_links_are_named_and_fail(tmp_path: Path, link: str, problem: str) -> None:
    assert check(tmp_path, link) == (1, [problem])


def test_the_site_that_was_built_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "docs" / "_build").mkdir(parents=True)
    (tmp_path / "docs" / "_build" / "copy.md").write_text("[a](none.md)")
    assert check(tmp_path, "[a](docs/guide.md)") == (0, ["2 pages, no broken link"])
