"""One file for each question."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.harness import Scenario
from benchmarks.scenarios.cost import cost
from benchmarks.scenarios.decay import deferred, history, queues
from benchmarks.scenarios.drain import drain, drain_io
from benchmarks.scenarios.due import due_burst, due_rate, promotion
from benchmarks.scenarios.enqueue import enqueue, enqueue_many, producers
from benchmarks.scenarios.memory import memory
from benchmarks.scenarios.pickup import pickup
from benchmarks.scenarios.pinned import pinned
from benchmarks.scenarios.processor import processor

SCENARIOS: Mapping[str, Scenario] = {
    "enqueue": enqueue,
    "enqueue-many": enqueue_many,
    "producers": producers,
    "drain": drain,
    "drain-io": drain_io,
    "pickup": pickup,
    "deferred": deferred,
    "history": history,
    "queues": queues,
    "due-burst": due_burst,
    "promotion": promotion,
    "due-rate": due_rate,
    "pinned": pinned,
    "memory": memory,
    "cost": cost,
    "processor": processor,
}
