"""Names of parametrized tests. pytest-xdist needs them alike in each of its processes."""

from __future__ import annotations

import re

ADDRESS = re.compile(r" at 0x[0-9a-f]*")
# An address, or a signature as Django makes it, which tells the second.
UNLIKE = re.compile(rf"{ADDRESS.pattern}|:[0-9A-Za-z]{{6}}:[0-9A-Za-z_-]{{43}}")


def named(value: object) -> str:
    """What ``repr`` says, without where an object lies in memory."""
    return ADDRESS.sub("", repr(value))[:80]
