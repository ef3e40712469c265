"""Names of parametrized tests. pytest-xdist needs them alike in each of its processes."""

from __future__ import annotations

import re
from collections.abc import Iterable

ADDRESS = re.compile(r" at 0x[0-9a-f]*")
# An address, or a signature as Django makes it, which tells the second.
UNLIKE = re.compile(rf"{ADDRESS.pattern}|:[0-9A-Za-z]{{6}}:[0-9A-Za-z_-]{{43}}")


def named(value: object) -> str:
    """What ``repr`` says, without where an object lies in memory, and sets in order."""
    if isinstance(value, (set, frozenset)):
        return ", ".join(sorted(map(repr, value))).join("{}")[:80]
    return ADDRESS.sub("", repr(value))[:80]


def is_unlike(name: str, values: Iterable[object]) -> bool:
    """Whether a test of these values may have another name in another process."""
    sets = (value for value in values if isinstance(value, (set, frozenset)) and repr(value) != named(value))
    return UNLIKE.search(name) is not None or any(repr(value) in name for value in sets)
