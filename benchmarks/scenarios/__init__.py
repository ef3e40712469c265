"""One file for each question."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.harness import Scenario
from benchmarks.scenarios.drain import drain, drain_io

SCENARIOS: Mapping[str, Scenario] = {
    "drain": drain,
    "drain-io": drain_io,
}
