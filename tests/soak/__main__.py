"""``python -m tests.soak --minutes 10 --seed 7 --json FILE``: exit code 1 if anything is wrong."""

from __future__ import annotations

import argparse
import logging
import secrets
import signal
import sys
from pathlib import Path

from tests.soak.run import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the load and the nemesis go on")
    parser.add_argument("--seed", type=int, help="what the nemesis and the producers do; random by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report into FILE")
    parser.add_argument(
        "--directory", type=Path, help="where logs and ledger go; they stay if all is not well"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    # So that whoever ends it (a timeout, a service manager) leaves no workers and no PostgreSQL behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    seed = secrets.randbelow(10**6) if arguments.seed is None else arguments.seed
    logging.getLogger(__name__).info("seed %s", seed)
    report = Soak(seconds=arguments.minutes * 60, seed=seed, directory=arguments.directory).run()
    print(report.text())
    if arguments.json is not None:
        arguments.json.write_text(report.json())
    return 1 if report.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
