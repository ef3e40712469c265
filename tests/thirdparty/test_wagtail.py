"""Wagtail enqueues its tasks by the ``django-tasks`` package, also on Django 6: they run here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT_DIR
from tests.scratch_database import Query

pytest.importorskip("wagtail", exc_type=ModuleNotFoundError)


@pytest.mark.timeout(300)
def test_tasks_of_wagtail_complete(scratch_url: str, scratch: Query, tmp_path: Path) -> None:
    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            env={
                **os.environ,
                "DATABASE_URL": scratch_url,
                "DJANGO_SETTINGS_MODULE": "tests.thirdparty.wagtail_settings",
                "PYTHONPATH": str(PROJECT_DIR),
                "WAGTAIL_MEDIA": str(tmp_path),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def site(verb: str) -> str:
        return run("-m", "tests.thirdparty.wagtail_site", verb)

    def counts() -> dict[tuple[str, str], int]:
        rows = scratch("SELECT kind, state::text, count(*) FROM awa.jobs GROUP BY kind, state")
        return {(kind.rpartition(".")[2], state): count for kind, state, count in rows}

    worker = ("-m", "django", "awa_worker", "--drain", "--max-time", "60")
    run("-m", "django", "migrate", "--verbosity", "0")

    site("edit")
    saved = {"insert_or_update_object_task": 2, "update_reference_index_task": 2}
    assert counts() == {(name, "available"): count for name, count in saved.items()}
    assert json.loads(site("show")) == {"pages": [], "documents": []}
    run(*worker)
    assert counts() == {(name, "completed"): count for name, count in saved.items()}
    assert json.loads(site("show")) == {"pages": ["Rhubarb"], "documents": ["Recipe"]}

    [file] = (tmp_path / "documents").iterdir()
    site("delete")
    assert file.exists()
    assert counts()["delete_file_from_storage_task", "available"] == 1
    run(*worker)
    assert not file.exists()
    assert {state for _, state in counts()} == {"completed"}
