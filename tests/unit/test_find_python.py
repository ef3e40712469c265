"""``scripts/find_python.sh`` finds the Pythons that run, also those that only a version manager knows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "find_python.sh"
VERSION = "{}.{}".format(*sys.version_info)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory for PATH that has what the script needs, and no Python."""
    directory = tmp_path / "tools"
    directory.mkdir()
    for name in ("sort", "awk", "dirname"):
        found = shutil.which(name)
        assert found is not None
        (directory / name).symlink_to(found)
    return directory


def found(*path: Path, **variables: str) -> list[str]:
    env = {"PATH": ":".join(map(str, path)), **variables}
    done = subprocess.run(["/bin/sh", SCRIPT], env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def make_pyenv(root: Path) -> Path:
    """A pyenv whose shims refuse to run, as those of versions that are not chosen do; its Python."""
    for name in ("python3", "python3.13", "python"):
        program(root / "shims" / name, "echo 'pyenv: command not found' >&2; exit 127")
    program(root / "bin" / "pyenv", f"echo {root}")
    python = root / "versions" / "3.x" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(getattr(sys, "_base_executable", sys.executable))
    return python


def test_nothing_is_found_where_nothing_is(tools: Path) -> None:
    assert found(tools) == []


def test_shims_that_refuse_lead_to_the_versions_beside_them(tools: Path, tmp_path: Path) -> None:
    python = make_pyenv(tmp_path / "pyenv")
    assert found(tmp_path / "pyenv" / "shims", tools) == [f"{VERSION} {python}"]


def test_pyenv_says_itself_where_its_versions_are(tools: Path, tmp_path: Path) -> None:
    python = make_pyenv(tmp_path / "pyenv")
    assert found(tmp_path / "pyenv" / "bin", tools) == [f"{VERSION} {python}"]
    assert found(tools, PYENV_ROOT=str(tmp_path / "pyenv")) == [f"{VERSION} {python}"]


def test_the_first_of_a_version_on_the_path_is_taken(tools: Path, tmp_path: Path) -> None:
    make_pyenv(tmp_path / "pyenv")
    mine = tmp_path / "mine" / "python3"
    mine.parent.mkdir()
    mine.symlink_to(getattr(sys, "_base_executable", sys.executable))
    assert found(mine.parent, tmp_path / "pyenv" / "bin", tools) == [f"{VERSION} {mine}"]
