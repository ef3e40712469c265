"""The wheel, in a virtual environment and a project of its own, as a newcomer would use it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.conftest import PROJECT_DIR

# One group: the site is made once, not by each process of pytest-xdist.
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400), pytest.mark.xdist_group("packaging")]

SETTINGS = """
INSTALLED_APPS += ["awa_django", "parcels"]
DATABASES = {{"default": {database!r}}}
"""

TASKS = """
from awa_django import job
from django.contrib.auth.models import Group


@job(queue="post")
def ship(parcel: int, to: str) -> None:
    Group.objects.create(name=f"parcel {parcel} to {to}")
"""

VISIT_ADMIN = """
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

client = Client(SERVER_NAME="localhost")
client.force_login(User.objects.create_superuser("admin"))
for model in admin.site._registry:
    if model._meta.app_label == "awa":
        name = model._meta.model_name
        print("page", name, client.get(reverse(f"admin:awa_{name}_changelist")).status_code)
"""


@dataclass(frozen=True)
class Site:
    """A project made by `django-admin startproject`, with the wheel installed and migrated."""

    directory: Path
    python: Path
    connection: psycopg.Connection[Any]

    def manage(self, *arguments: str) -> str:
        return run(self.python, "manage.py", *arguments, cwd=self.directory)


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that must succeed, without this project's settings and paths."""
    hidden = {"DATABASE_URL", "DJANGO_SETTINGS_MODULE", "PYTHONPATH", "EMBEDDED_POSTGRES"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def package_files() -> set[str]:
    return {
        path.relative_to(PROJECT_DIR).as_posix()
        for path in (PROJECT_DIR / "awa_django").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")  # a build leaves files where it runs
    for name in ("pyproject.toml", "README.md", "LICENSE", "pytest_awa.py"):
        shutil.copy(PROJECT_DIR / name, source)
    for name in ("awa_django", "benchmarks", "example_project", "tests"):
        shutil.copytree(PROJECT_DIR / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    return source


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return build(source, "dist")


def build(source: Path, directory: str) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", source / directory, source, cwd=source)
    (wheel,) = (source / directory).iterdir()
    return wheel


@pytest.fixture(scope="module")
def database(database_url: str, django_db_blocker: Any) -> Iterator[dict[str, Any]]:
    """An empty database beside the tests' own, as Django's settings name it."""
    parts = conninfo_to_dict(database_url)
    name = f"{parts['dbname']}_packaging"
    with psycopg.connect(database_url, autocommit=True) as server:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        server.execute(drop)
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": name,
            "USER": parts.get("user") or "",
            "PASSWORD": parts.get("password") or "",
            "HOST": parts.get("host") or "",
            "PORT": parts.get("port") or "",
        }
        server.execute(drop)


@pytest.fixture(scope="module")
def site(wheel: Path, database: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    environment = tmp_path_factory.mktemp("environment")
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "venv", environment, cwd=directory)
    same_django = f"django=={django.get_version()}"
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        f"awa-django[binary] @ {wheel.as_uri()}",
        same_django,
        cwd=directory,
    )
    run(environment / "bin" / "django-admin", "startproject", "mysite", ".", cwd=directory)
    run(python, "manage.py", "startapp", "parcels", cwd=directory)
    with (directory / "mysite" / "settings.py").open("a") as settings:
        settings.write(SETTINGS.format(database=database))
    (directory / "parcels" / "tasks.py").write_text(TASKS)
    run(python, "manage.py", "migrate", "--verbosity=0", cwd=directory)
    options = {"dbname": database["NAME"], "autocommit": True}
    for key in ("USER", "PASSWORD", "HOST", "PORT"):
        if database[key]:
            options[key.lower()] = database[key]
    with psycopg.connect(**options) as connection:
        yield Site(directory, python, connection)


def test_the_wheel_has_the_whole_package_and_nothing_else(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert set(names) == {*package_files(), "pytest_awa.py"}  # the plugin for pytest is beside the package
    assert "awa_django/py.typed" in names
    assert any(name.endswith(".reverse.sql") for name in names)
    assert any(name.startswith("awa_django/storage/sql/") for name in names)


def test_two_builds_are_the_same_bytes(source: Path, wheel: Path) -> None:
    for path in source.rglob("*.py"):
        os.utime(path, (0, 0))  # as in another checkout
    assert build(source, "again").read_bytes() == wheel.read_bytes()


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata_name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(metadata_name).decode()
    assert "Requires-Python: >=3.11" in metadata
    needed = {
        line.split(":", 1)[1].strip() for line in metadata.splitlines() if line.startswith("Requires-Dist:")
    }
    always = {line.split("<")[0].split(">")[0] for line in needed if "extra ==" not in line}
    assert always == {"django", "psycopg", "msgspec", "blake3", "cronsim"}
    assert "Provides-Extra: embedded" in metadata
    assert "License-Expression: MIT" in metadata


def test_the_installed_package_is_the_one_that_runs(site: Site) -> None:
    where = site.manage("shell", "-c", "import awa_django; print('at', awa_django.__file__)")
    assert f"at {site.python.parent.parent}" in where


def test_no_migration_is_missing_in_a_fresh_project(site: Site) -> None:
    assert "No changes detected" in site.manage("makemigrations", "--check", "--dry-run")
    site.manage("check", "--database", "default", "--fail-level", "WARNING")


def test_a_job_of_the_project_runs(site: Site) -> None:
    enqueue = "from parcels.tasks import ship; ship.enqueue(parcel=7, to='Ann')"
    site.manage("shell", "-c", enqueue)
    site.manage("awa_worker", "--drain")
    found = site.connection.execute("SELECT kind, queue, state::text FROM awa.jobs").fetchall()
    assert found == [("parcels.ship", "post", "completed")]
    assert site.connection.execute("SELECT name FROM auth_group").fetchall() == [("parcel 7 to Ann",)]
    site.manage("awa_doctor")


def test_the_admin_pages_answer(site: Site) -> None:
    pages = [
        line.split()
        for line in site.manage("shell", "-c", VISIT_ADMIN).splitlines()
        if line.startswith("page")
    ]
    assert {"hotjob", "deferredjob", "job"} <= {name for _, name, _ in pages}
    assert {status for _, _, status in pages} == {"200"}
