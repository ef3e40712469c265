"""The server of a cluster: made once, started when it does not answer, stopped by its guard."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from example_project.embedded_postgres import guard
from example_project.embedded_postgres.cluster import Cluster, EmbeddedPostgresError
from example_project.embedded_postgres.guard import PATIENCE, pid_on_file, postmaster

SETTINGS = """\
listen_addresses = '{listen}'
port = {port}
unix_socket_directories = '{socket_dir}'
unix_socket_permissions = 0700
max_connections = 200
log_line_prefix = '%m [%p] '
"""
# A test's data need not survive a crash of the machine.
TEST_SETTINGS = "fsync = off\nfull_page_writes = off\n"


def run(
    cluster: Cluster, program: str, *arguments: str, inherited: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a program of the wheel as the cluster's owner, in an environment that cannot disturb it."""
    as_owner: dict[str, object] = {}
    if cluster.owner is not None:
        as_owner = {"user": cluster.owner.pw_uid, "group": cluster.owner.pw_gid, "extra_groups": []}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [cluster.binaries / program, *arguments],
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        umask=0o077,
        pass_fds=inherited,
        start_new_session=True,  # a Ctrl-C in the terminal must not reach the server
        check=False,
        **as_owner,
    )


def create(cluster: Cluster, lock: int) -> None:
    """Run initdb once; a half-made cluster of a killed process is made anew.

    initdb holds the lock too: when its caller is killed, the next one waits until it has ended.
    """
    if (cluster.home / "created").exists():
        made_by = (cluster.data / "PG_VERSION").read_text().strip()
        ours = re.sub(r"\D", "", cluster.binaries.parent.name)
        if ours and made_by != ours:
            raise EmbeddedPostgresError(
                f"the data in {cluster.home} were made by PostgreSQL {made_by}, the installed one is {ours}: "
                "dump what you need with the old one, then delete that directory"
            )
        return
    shutil.rmtree(cluster.data, ignore_errors=True)
    password = cluster.home / "password"
    password.unlink(missing_ok=True)
    password.touch(mode=0o600)
    password.write_text(secrets.token_urlsafe() + "\n")
    if cluster.owner is not None:
        os.chown(password, cluster.owner.pw_uid, cluster.owner.pw_gid)
    done = run(
        cluster,
        "initdb",
        f"--pgdata={cluster.data}",
        "--username=postgres",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
        f"--pwfile={password}",
        inherited=[lock],
    )
    if done.returncode:
        raise EmbeddedPostgresError(f"initdb failed:\n{done.stdout}")
    with (cluster.data / "postgresql.conf").open("a") as conf:
        conf.write("include 'embedded.conf'\n")
    (cluster.home / "created").touch(mode=0o600)


def start(cluster: Cluster) -> None:
    """Start the server unless it answers; the start lock is held, so nobody else is starting it."""
    give_up_at = time.monotonic() + PATIENCE
    failures = 0
    while not _answers(cluster):
        if time.monotonic() > give_up_at:
            raise EmbeddedPostgresError(f"PostgreSQL does not answer after {PATIENCE} s, see {cluster.log}")
        if postmaster(cluster.data) is not None:  # started by a process that was killed then
            time.sleep(0.05)
            continue
        _forget_reused_pid(cluster.data)
        _configure(cluster)
        options = [f"--pgdata={cluster.data}", f"--log={cluster.log}", "--wait", f"--timeout={PATIENCE}"]
        done = run(cluster, "pg_ctl", "start", *options)
        if done.returncode:
            failures += 1
            if failures == 5:
                tail = "\n".join(cluster.log.read_text(errors="replace").splitlines()[-10:])
                raise EmbeddedPostgresError(
                    f"PostgreSQL does not start:\n{done.stdout}{cluster.log} ends:\n{tail}"
                )
            time.sleep(1)  # the last processes of a killed server still hold its shared memory


def _configure(cluster: Cluster) -> None:
    opened = os.environ.get("EMBEDDED_POSTGRES_PORT")
    quoted = str(cluster.socket_dir).replace("'", "''")
    text = SETTINGS.format(listen="127.0.0.1" if opened else "", port=opened or 5432, socket_dir=quoted)
    conf = cluster.data / "embedded.conf"
    conf.write_text(text + ("" if cluster.durable else TEST_SETTINGS))
    conf.chmod(0o600)
    if cluster.owner is not None:
        os.chown(conf, cluster.owner.pw_uid, cluster.owner.pw_gid)


def _answers(cluster: Cluster) -> bool:
    """Whether the server takes connections: only asking tells, a pid file may be stale."""
    from psycopg.pq import PGconn, Ping

    return PGconn.ping(cluster.url.encode()) == Ping.OK


def _forget_reused_pid(data: Path) -> None:
    """Remove a pid file left over from a kill or a reboot whose number another program has now.

    PostgreSQL would refuse to start. All other stale files it takes over itself; the file of a
    server that is just starting must stay.
    """
    if pid_on_file(data) is not None and postmaster(data) is None:
        (data / "postmaster.pid").unlink(missing_ok=True)


def watch(cluster: Cluster) -> None:
    """Start the guard unless one waits already. It holds guard.lock, which it gets locked from here."""
    descriptor = os.open(cluster.home / "guard.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        subprocess.run(
            [sys.executable, "-I", "-S", guard.__file__, str(descriptor), cluster.home, cluster.data],
            check=True,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[descriptor],
        )
    finally:
        os.close(descriptor)
