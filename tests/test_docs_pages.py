"""Each page of the documentation is run: its Python in order, its command lines as far as they can be parsed.

A block is run unless its fence says otherwise, after the language: ``norun`` (code of another tool, or a
sketch) is only compiled. A page whose code needs more than a project that is ready has a test of its own,
which is named here.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from argparse import ArgumentParser, _SubParsersAction
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from django.core.management import get_commands, load_command_class
from django.db import connection, transaction

import awa_django
from awa_django import conf
from awa_django.testing import drain, enqueued_jobs
from example_project import shop
from example_project.shop import models
from tests.conftest import PROJECT_DIR
from tests.test_docs import DJANGO_OPTIONS

OWN_TEST = {
    "README.md": "test_docs.py",
    "docs/django-tasks.md": "test_docs_tasks.py",
    "docs/testing.md": "test_docs.py",
    "docs/tutorial.md": "test_docs_tutorial.py",
    "docs/two-hosts.md": "test_docs_two_hosts.py",
}
OWN_SQL_TEST = {"docs/roles.md": "faults/roles.py", "docs/deployment.md": "test_docs_deployment.py"}
PAGES = ["README.md"] + [
    str(page.relative_to(PROJECT_DIR))
    for page in sorted((PROJECT_DIR / "docs").rglob("*.md"))
    if "_build" not in page.parts
]
FENCE = re.compile(r"^( *)```([\w.+-]*)([^\n`]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"""manage\.py +([a-z_]+)((?: +(?:"[^"]*"|[^\s`#|&;>"]+))*)""")
# Commands of the queues that the pages on moving speak of.
OF_OTHERS = {"db_worker", "procrastinate", "qcluster"}
# What a fence may say after its language.
MARKS = {"", "norun"}


class Block(NamedTuple):
    language: str
    mark: str
    code: str


def blocks(page: str) -> list[Block]:
    text = (PROJECT_DIR / page).read_text(encoding="utf-8")
    return [
        Block(language, mark.strip(), re.sub(rf"^{indent}", "", code, flags=re.MULTILINE))
        for indent, language, mark, code in FENCE.findall(text)
    ]


def pages_with(language: str) -> list[str]:
    return [page for page in PAGES if any(block.language == language for block in blocks(page))]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, empty_registry: None) -> ModuleType:
    """The module ``shop.tasks`` of a project that has the models of the example, and no job yet."""
    module = ModuleType("shop.tasks")
    for name, known in (("shop", shop), ("shop.models", models), ("shop.tasks", module)):
        monkeypatch.setitem(sys.modules, name, known)
    # What a settings module has at hand.
    module.__dict__.update(timedelta=timedelta, DATABASES={"default": {}})
    return module


def run(page: str, module: ModuleType, settings: Any) -> dict[str, Any]:
    """Run the page's Python in the module; each ``AWA`` that it shows becomes the setting."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('awa.jobs_id_seq', 1000)")  # away from the ids that pages name
    names = module.__dict__
    for language, mark, code in blocks(page):
        if language == "python" and mark != "norun":
            names.pop("AWA", None)
            exec(compile(code, page, "exec", dont_inherit=True), names)
            if "AWA" in names:
                settings.AWA = names["AWA"]
                conf.get_settings()
    return names


@pytest.mark.parametrize("page", pages_with("python"))
def test_every_block_of_python_compiles(page: str) -> None:
    for language, mark, code in blocks(page):
        if language == "python":
            assert mark in MARKS
            compile(code, page, "exec", dont_inherit=True)


@pytest.mark.django_db
@pytest.mark.parametrize("page", [page for page in pages_with("python") if page not in OWN_TEST])
def test_the_page_runs(page: str, module: ModuleType, settings: Any) -> None:
    run(page, module, settings)


@pytest.mark.django_db
def test_what_the_page_on_transactions_says_is_so(module: ModuleType, settings: Any) -> None:
    names = run("docs/transactions.md", module, settings)
    order = names["order"]
    assert [job.pk for job in enqueued_jobs()] == [names["done"].id, names["kept"].id]
    names["award_points"].enqueue(order_id=order.pk, points=3)
    names["award_points_once"].enqueue(order_id=order.pk, points=4)
    names["write_receipt"].enqueue(order_id=order.pk)
    names["mark_paid"].enqueue(order_id=order.pk)
    assert {run.outcome for run in drain()} == {"completed"}
    order.refresh_from_db()
    assert (order.points, order.paid_at is None, models.Message.objects.count()) == (7, False, 1)
    assert len(enqueued_jobs("shop.send_receipt")) == 3


@pytest.mark.django_db
@pytest.mark.parametrize("page", [page for page in pages_with("sql") if page not in OWN_SQL_TEST])
def test_every_sql_statement_runs(page: str) -> None:
    with connection.cursor() as cursor:
        for language, _, code in blocks(page):
            for statement in code.split(";") if language == "sql" else ():
                if statement.strip():
                    # The test is one transaction, in which nothing can be done concurrently.
                    with transaction.atomic():
                        cursor.execute(statement.replace(" CONCURRENTLY", ""))


def test_every_command_line_is_understood() -> None:
    for page in PAGES:
        for name, arguments in COMMAND.findall((PROJECT_DIR / page).read_text(encoding="utf-8")):
            if name in OF_OTHERS:
                continue
            assert name in get_commands(), f"{page}: there is no command {name}"
            command = load_command_class(get_commands()[name], name)
            command.create_parser("manage.py", name).parse_args(shlex.split(arguments))


def test_every_option_of_every_command_is_documented() -> None:
    page = (PROJECT_DIR / "docs/reference/commands.md").read_text(encoding="utf-8")
    sections = dict(section.split("\n", 1) for section in page.split("\n## ")[1:])
    names = [name for name, app in get_commands().items() if app == "awa_django"]
    assert sorted(sections) == sorted(names)
    sections["awa_worker"] = (PROJECT_DIR / "docs/worker.md").read_text(encoding="utf-8")
    for name in names:
        code = " ".join(re.findall(r"^(?:\| )?`([^`]+)`", sections[name], re.MULTILINE))
        documented = set(re.findall(r"(?<!\S)\[?(--[a-z-]+|[a-z]+(?:-[a-z]+)*(?=\s|$))", code))
        parser = load_command_class("awa_django", name).create_parser("manage.py", name)
        usual = options(load_command_class("django.core", "flush").create_parser("manage.py", "flush"))
        own = options(parser) - (usual if name == "flush" else DJANGO_OPTIONS)
        assert own <= documented, f"{name}: {own - documented} are not documented"
        assert {each for each in documented if each.startswith("--")} <= own


def options(parser: ArgumentParser) -> set[str]:
    """The options of a command, and its verbs with their options."""
    found: set[str] = set()
    for action in parser._actions:
        found |= {each for each in action.option_strings if each.startswith("--")}
        if isinstance(action, _SubParsersAction):
            found |= set(action.choices)
            found |= {each for verb in action.choices.values() for each in options(verb)}
    return found


def test_every_public_name_is_in_the_reference() -> None:
    page = (PROJECT_DIR / "docs/reference/api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\.\. auto[a-z]+:: (\w+)", page, re.MULTILINE))
    assert set(awa_django.__all__) <= shown


def test_every_make_target_and_extra_exists() -> None:
    makefile = (PROJECT_DIR / "Makefile").read_text(encoding="utf-8")
    project = tomllib.loads((PROJECT_DIR / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for page in PAGES:
        text = (PROJECT_DIR / page).read_text(encoding="utf-8")
        for target in re.findall(r"(?:^\$ |`)make ([a-z-]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page}: no target {target}"
        for extras in re.findall(r"awa-django\[([a-z,]+)\]", text):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), page


def test_layers_of_the_code_are_those_that_are_checked() -> None:
    checked = tomllib.loads((PROJECT_DIR / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ][0]["layers"]
    told = (PROJECT_DIR / "docs" / "how-it-works.md").read_text().partition("| layer | |\n|---|---|\n")[2]
    rows = [line.split("|")[1] for line in told.partition("\n\n")[0].splitlines()]
    assert [re.findall(r"\w+", row) for row in rows] == [re.findall(r"\w+", layer) for layer in checked]


def test_makefile_agrees_with_the_project() -> None:
    """A target named like a directory (dist) would count as made, a group that is missing stops pip."""
    makefile = (PROJECT_DIR / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    assert set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)) == set(phony[1].split())
    groups = tomllib.loads((PROJECT_DIR / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    for name in ("Makefile", "noxfile.py"):
        text = (PROJECT_DIR / name).read_text(encoding="utf-8")
        assert set(re.findall(r"--group[\s\",]+(\w+)", text)) <= set(groups), name


@pytest.mark.parametrize(
    ("beside", "alone", "code"),
    [(0, 0, 0), (0, 5, 0), (5, 0, 0), (5, 5, 2), (1, 0, 2), (0, 1, 2), (1, 5, 2)],
)
def test_faults_fail_where_a_half_of_them_does_or_none_was_chosen(
    tmp_path: Path, beside: int, alone: int, code: int
) -> None:
    """pytest says 5 where ``ARGS`` left it no test."""
    shutil.copy(PROJECT_DIR / "Makefile", tmp_path)
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", "scripts/system_packages.sh", "scripts/system_postgres.sh", "installed"):
        (tmp_path / name).touch()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *"not measures"*) exit {beside};; *) exit {alone};; esac\n')
    python.chmod(0o755)
    make = ["make", "faults", "python=./python", "dev_stamp=installed"]
    assert subprocess.run(make, cwd=tmp_path, check=False, capture_output=True).returncode == code


def test_pages_with_a_test_of_their_own_have_one() -> None:
    for page, test in (OWN_TEST | OWN_SQL_TEST).items():
        assert (PROJECT_DIR / page).exists()
        assert Path(page).name in (PROJECT_DIR / "tests" / test).read_text(encoding="utf-8")
