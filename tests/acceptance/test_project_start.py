"""Workers of projects whose own ``manage.py`` does more than to name the settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.factories import insert_job
from tests.worker_fixtures import Database

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]

SETTINGS = """
from tests.worker_settings import *
INSTALLED_APPS = [*INSTALLED_APPS, "kiosk"]
"""
MANAGE = """
import sys
from pathlib import Path
from types import ModuleType

{top}

def main():
    sys.path.append(str(Path(__file__).parent / "apps"))
    {main}
    from django.core.management import execute_from_command_line
    execute_from_command_line(sys.argv)

{guard}
    main()
"""
TASKS = """
import sys
from awa_django import job
{imports}

@job
def sell():
    sys.stderr.write("sold\\n")
"""


def run_worker(
    project: Path,
    env: dict[str, str],
    *arguments: str,
    top: str = "",
    main: str = "",
    imports: str = "",
    guard: str = 'if __name__ == "__main__":',
) -> str:
    """Run the jobs that wait in a project made so; what the worker and its processes said."""
    (project / "apps" / "kiosk").mkdir(parents=True)
    (project / "manage.py").write_text(MANAGE.format(top=top, main=main, guard=guard))
    (project / "kiosk_settings.py").write_text(SETTINGS)
    (project / "apps" / "kiosk" / "__init__.py").write_text("import sys; sys.stderr.write('set up\\n')")
    (project / "apps" / "kiosk" / "tasks.py").write_text(TASKS.format(imports=imports))
    done = subprocess.run(
        [sys.executable, "manage.py", "awa_worker", "--drain", *arguments],
        env={**env, "DJANGO_SETTINGS_MODULE": "kiosk_settings"},
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_apps_in_a_directory_that_manage_py_adds_are_set_up_once_for_all_processes(
    database: Database, worker_env: dict[str, str], tmp_path: Path
) -> None:
    insert_job(kind="kiosk.sell")
    said = run_worker(tmp_path, worker_env, "--processes", "2")
    assert said.count("sold\n") == 1
    assert said.count("set up\n") == 2  # by the supervisor, and by the forkserver


def test_what_manage_py_or_a_configuration_prepares_is_there_in_each_process(
    database: Database, worker_env: dict[str, str], tmp_path: Path
) -> None:
    """Each began with Django half set up, and refused to go on."""
    (tmp_path / "configurations").mkdir()
    (tmp_path / "configurations" / "__init__.py").touch()
    (tmp_path / "configurations" / "importer.py").write_text(
        "import sys\ndef install(): sys.modules['of_configuration'] = sys\n"
    )
    insert_job(kind="kiosk.sell")
    said = run_worker(
        tmp_path,
        {**worker_env, "DJANGO_CONFIGURATION": "Live"},
        top='sys.modules["of_manage_py"] = ModuleType("of_manage_py")',
        main="import configurations.importer; configurations.importer.install()",
        imports="import of_manage_py, of_configuration",
    )
    assert said.count("sold\n") == 1


def test_manage_py_whose_command_runs_wherever_it_is_imported(
    database: Database, worker_env: dict[str, str], tmp_path: Path
) -> None:
    """Each child began as another worker, and died: no job ever ran, and the exit code was 0."""
    insert_job(kind="kiosk.sell")
    said = run_worker(tmp_path, worker_env, "--max-time", "60", guard="if True:")
    assert said.count("sold\n") == 1
    assert "died" not in said
