"""The testing kit in a project of its own: Django's runner and pytest, in parallel, on a kept database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections
from psycopg import sql

from tests.conftest import PROJECT_DIR

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("runners")]

SETTINGS = """
import json, os

SECRET_KEY = "tests"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "awa_django", "shelf"]
DATABASES = {"default": json.loads(os.environ["SHELF_DATABASE"])}
"""

TASKS = """
from awa_django import Unique, job
from django.contrib.auth.models import Group


@job(unique=Unique(args=True))
def lend(title: str) -> None:
    Group.objects.create(name=title)
"""

TESTS = """
from django.contrib.auth.models import Group
from django.test import TestCase, TransactionTestCase

from awa_django.models import Job
from awa_django.testing import assert_enqueued, drain
from shelf.tasks import lend


class Lends:
    def lend(self):
        self.assertEqual((Job.objects.count(), Group.objects.count()), (0, 0))
        self.assertTrue(lend.enqueue("Emma").created)
        assert_enqueued(lend, {"title": "Emma"})
        self.assertEqual([run.outcome for run in drain()], ["completed"])
        self.assertEqual(Group.objects.get().name, "Emma")
        self.assertTrue(lend.using(delay=60).enqueue("Persuasion").created)

    def test_one(self):
        self.lend()

    def test_another(self):
        self.lend()


class PlainTest(Lends, TestCase):
    pass


class OtherPlainTest(Lends, TestCase):
    pass


class CommittingTest(Lends, TransactionTestCase):
    pass


class OtherCommittingTest(Lends, TransactionTestCase):
    pass
"""

PYTEST_TESTS = """
import pytest

from shelf.tasks import lend

FEW_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "awa_django"]


def use(awa_jobs):
    assert awa_jobs.enqueued_jobs() == []
    assert lend.enqueue("Emma").created
    lend.using(delay=60).enqueue("Persuasion")
    assert [run.outcome for run in awa_jobs.drain()] == ["completed"]


@pytest.mark.django_db(transaction=True, available_apps=FEW_APPS)
@pytest.mark.parametrize("number", [1, 2])
def test_committing_with_few_apps(awa_jobs, number):
    use(awa_jobs)


@pytest.mark.parametrize("number", range(4))
def test_plain(awa_jobs, number):
    use(awa_jobs)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", range(4))
def test_committing(awa_jobs, number):
    use(awa_jobs)


@pytest.mark.parametrize("number", [1, 2])
def test_committing_by_fixture(transactional_db, awa_jobs, number):
    use(awa_jobs)
"""

NO_DJANGO = """
import sys


def test_nothing_is_imported():
    assert "pytest_awa" in sys.modules
    assert not {"django", "awa_django", "msgspec", "psycopg"} & set(sys.modules)
"""


@dataclass
class Project:
    directory: Path
    environment: dict[str, str] = field(repr=False)

    def run(self, *command: str) -> str:
        """The output of a command that must succeed."""
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def pytest(self, *arguments: str) -> str:
        return self.run("-m", "pytest", "-q", "-p", "pytest_awa", "-p", "no:cacheprovider", *arguments)


@pytest.fixture
def project(tmp_path: Path, database_url: str) -> Iterator[Project]:
    """A project of one app, whose test databases are gone after the test."""
    name = f"{connections['default'].settings_dict['NAME']}_shelf"
    settings = connections["default"].settings_dict
    wanted: dict[str, Any] = {key: settings[key] for key in ("ENGINE", "USER", "PASSWORD", "HOST", "PORT")}
    (tmp_path / "shelf").mkdir()
    for path, text in {
        "mysettings.py": SETTINGS,
        "shelf/__init__.py": "",
        "shelf/tasks.py": TASKS,
        "shelf/tests.py": TESTS,
        "test_shelf.py": PYTEST_TESTS,
        "pytest.ini": "[pytest]\nfilterwarnings = error\n",
    }.items():
        (tmp_path / path).write_text(text)
    hidden = {"DATABASE_URL", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    yield Project(
        tmp_path,
        {
            **environment,
            "DJANGO_SETTINGS_MODULE": "mysettings",
            "SHELF_DATABASE": json.dumps({**wanted, "NAME": name}),
            "PYTHONPATH": os.pathsep.join(
                [str(tmp_path), str(PROJECT_DIR), os.environ.get("PYTHONPATH", "")]
            ),
        },
    )
    with psycopg.connect(database_url, autocommit=True) as server:
        found = server.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [f"test_{name}%"])
        for (database,) in found.fetchall():
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))


def test_djangos_runner_in_parallel_on_a_kept_database(project: Project) -> None:
    test = ("-m", "django", "test", "--parallel", "2", "--keepdb", "--verbosity", "2")
    first = project.run(*test)
    assert "_shelf_2'" in first  # a clone for each process
    assert "Ran 8 tests" in first
    assert "Applying awa.0001_jobs... OK" in first
    again = project.run(*test, "--shuffle")
    assert "Ran 8 tests" in again
    assert "Applying awa" not in again


@pytest.mark.slow
def test_pytest_in_parallel_on_a_kept_database(project: Project) -> None:
    for order in ("no:randomly", "randomly"):
        assert "12 passed" in project.pytest("-p", order, "-n", "2", "--reuse-db", "test_shelf.py")


def test_pytest_in_one_process(project: Project) -> None:
    assert "12 passed" in project.pytest("-p", "no:randomly", "test_shelf.py")


def test_pytest_without_migrations(project: Project) -> None:
    assert "12 passed" in project.pytest("-p", "no:randomly", "--nomigrations", "test_shelf.py")


def test_the_plugin_costs_a_project_without_django_nothing(project: Project) -> None:
    (project.directory / "test_elsewhere.py").write_text(NO_DJANGO)
    del project.environment["DJANGO_SETTINGS_MODULE"]
    assert "1 passed" in project.pytest("-p", "no:django", "test_elsewhere.py")


def test_pytest_finds_the_plugin_by_itself() -> None:
    with (PROJECT_DIR / "pyproject.toml").open("rb") as file:
        told = tomllib.load(file)
    assert told["project"]["entry-points"]["pytest11"] == {"pytest_awa": "pytest_awa"}
    assert "pytest_awa.py" in told["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
