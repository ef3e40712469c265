"""`make dist`: build the sdist and the wheel into dist/, twice, and see that they are the same bytes.

What anybody builds from the same commit can then be compared with what was published.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parent.parent
DIST = PROJECT_DIR / "dist"


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    build(DIST)
    with tempfile.TemporaryDirectory() as again:
        build(Path(again))
        first, second = digests(DIST), digests(Path(again))
    for name, digest in first.items():
        print(f"{digest}  dist/{name}")
    if first != second:
        print("Two builds of the same files differ.", file=sys.stderr)
        return 1
    files = [str(DIST / name) for name in first]
    return subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], check=False
    ).returncode


def build(directory: Path) -> None:
    """The wheel is built from the sdist, so that it needs nothing that the sdist lacks."""
    command = [sys.executable, "-m", "build", "--outdir", str(directory), str(PROJECT_DIR)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def digests(directory: Path) -> dict[str, str]:
    """File name -> SHA-256."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())}


if __name__ == "__main__":
    sys.exit(main())
