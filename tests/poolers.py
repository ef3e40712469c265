"""pgbouncer in transaction mode in front of a throw-away server."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg

from tests.clusters import free_port, own, run_as_owner
from tests.test_docs import blocks
from tests.waiting import wait_until


def documented(**values: object) -> str:
    """The configuration of docs/deployment.md, with these values of a machine in place of its own."""
    [text] = [block for block in blocks("docs/deployment.md", "ini") if "[pgbouncer]" in block]
    for name, value in values.items():
        text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name
    return f"{text}unix_socket_dir =\n"


@contextlib.contextmanager
def pooler(url: str, *, pool_size: int = 5) -> Iterator[str]:
    """The URL of a pooler that has so many connections to the server of ``url``."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    assert program is not None, "pgbouncer is not installed"
    parts = urlsplit(url)
    port, name_of_it = free_port(), parts.path[1:]
    with tempfile.TemporaryDirectory(prefix="pooler-") as name:
        directory = Path(name)
        (directory / "users.txt").write_text(f'"{parts.username}" "{unquote(parts.password or "")}"\n')
        (directory / "pgbouncer.ini").write_text(
            documented(
                mysite=f"host={parts.hostname} port={parts.port} dbname={name_of_it}",
                listen_addr="127.0.0.1",
                listen_port=port,
                auth_file=directory / "users.txt",
                default_pool_size=pool_size,
            ).replace("mysite =", f"{name_of_it} =")
        )
        for path in (directory, *directory.iterdir()):
            own(path)
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, directory / "pgbouncer.ini"],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **run_as_owner(),
            )
        pooled = f"{parts.scheme}://{parts.username}:{parts.password}@127.0.0.1:{port}{parts.path}"

        def answers() -> bool:
            assert process.poll() is None, (directory / "log").read_text()
            try:
                psycopg.connect(pooled, connect_timeout=10).close()
            except psycopg.OperationalError:
                return False
            return True

        try:
            wait_until(answers, message=(directory / "log").read_text)
            yield pooled
        finally:
            process.kill()
            process.wait(10)
