"""``tests.producer`` in a process that a test starts and stops."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parent.parent


class Producer:
    """Started at once; ``project`` is the directory whose code it runs, another release's."""

    def __init__(self, env: Mapping[str, str], log: Path, *, project: Path = PROJECT_DIR) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.producer"],
                env={**env, "DJANGO_SETTINGS_MODULE": "tests.worker_settings"},
                cwd=project,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def acknowledged(self) -> list[int]:
        return [int(line) for line in self.log.read_text().splitlines() if line.isdigit()]

    def stop(self) -> list[int]:
        """The numbers that were acknowledged."""
        self.process.communicate(timeout=60)
        return self.acknowledged()

    def end(self) -> None:
        """Kill it unless it has ended."""
        self.process.kill()
        self.process.communicate(timeout=60)
