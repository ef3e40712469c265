"""docs/tutorial.md is done step by step in an empty directory: its files written, its commands run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connections
from psycopg import sql

from tests.conftest import PROJECT_DIR
from tests.test_docs_pages import blocks

# What belongs to a reader's machine, or goes on until it is stopped.
NOT_RUN = re.compile(
    r"mkdir |python3 -m venv|pip install|createdb|docker|export PG|python manage.py awa_worker$"
)
FILE = re.compile(r"# (\w+/\w+\.py)(, at the end|, in place of the old one)?\n")
# In place of `runserver`: whether the pages answer that the tutorial speaks of.
LOOK_AT_THE_ADMIN = """
from django.test import Client
client = Client(headers={"host": "127.0.0.1"})
assert client.login(username="demo", password="demo")
for page in "job", "hotjob", "deferredjob", "queuemeta", "cronjob", "runtimeinstance":
    assert client.get(f"/admin/awa/{page}/").status_code == 200, page
"""


@pytest.fixture
def database() -> Iterator[dict[str, str]]:
    """An empty database, and libpq's variables that lead to its server."""
    settings = connections["default"].settings_dict
    name = f"tutorial_{os.getpid()}"
    given = {"HOST": "PGHOST", "PORT": "PGPORT", "USER": "PGUSER", "PASSWORD": "PGPASSWORD"}
    environment = {variable: str(settings[key]) for key, variable in given.items() if settings[key]}
    conninfo = psycopg.conninfo.make_conninfo(
        dbname="postgres", **{variable[2:].lower(): value for variable, value in environment.items()}
    )
    with psycopg.connect(conninfo, autocommit=True) as server:
        identifier = sql.Identifier(name)
        server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))
        server.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        yield {**environment, "TUTORIAL": name}
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))


def write(directory: Path, code: str, database: str) -> None:
    """Do to a file what the first line of the block says: write it, add to it, or replace a function."""
    match = FILE.match(code)
    assert match, code
    path = directory / match[1]
    code = code.removeprefix(match[0]).replace('"NAME": "mysite"', f'"NAME": "{database}"')
    text = path.read_text() if path.exists() else ""
    if match[2] == ", in place of the old one":  # the last function of the file
        text, found, _ = text.partition(code[: code.index("(", code.index("def "))])
        assert found
        path.write_text(text + code)
    else:
        path.write_text(f"{text}\n\n{code}" if match[2] else code)


def run(command: str, directory: Path, environment: dict[str, str]) -> tuple[int, str]:
    """The exit code and all that the command says. One that hangs is killed with its children."""
    with subprocess.Popen(
        command,
        shell=True,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=250)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, output


def environment_of(database: dict[str, str]) -> dict[str, str]:
    """What a terminal of the reader's has, with this package and this Python."""
    return {
        **{key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"},
        **database,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(PROJECT_DIR),
        "PYTHONUNBUFFERED": "1",
    }


@pytest.mark.acceptance
@pytest.mark.timeout(600)
def test_the_tutorial_works(tmp_path: Path, database: dict[str, str]) -> None:
    environment = environment_of(database)
    run_count = 0
    for language, _, text in blocks("docs/tutorial.md"):
        if language == "python":
            write(tmp_path, text, database["TUTORIAL"])
            continue
        assert language == "console"
        for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, *expected = step.splitlines()
            if NOT_RUN.match(command):
                continue
            if command.endswith("runserver"):
                command = f"python manage.py shell -c '{LOOK_AT_THE_ADMIN}'"
            code, output = run(command, tmp_path, environment)
            pattern = ".*".join(".*".join(map(re.escape, line.split("..."))) for line in expected)
            assert re.search(pattern, output, re.DOTALL), f"$ {command}\n{output}"
            assert (code == 0) == ("Error:" not in pattern), f"$ {command}\n{output}"
            run_count += 1
    assert run_count > 15
