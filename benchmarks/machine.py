"""What the numbers were taken on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import django
import psutil
import psycopg

from benchmarks.database import PROJECT_DIR, Server

# What decides how fast and how safe this server is.
SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
)


def describe(server: Server) -> dict[str, object]:
    """When, on what, and with what settings."""
    with psycopg.connect(server.url) as connection:
        settings = {}
        for name in SETTINGS:
            row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
            settings[name] = row[0] if row else None
    return {
        "taken_at": datetime.now(UTC).isoformat(timespec="minutes"),
        "commit": _commit(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "django": django.get_version(),
        "psycopg": psycopg.__version__,
        "postgresql": settings,
    }


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
