"""The queue against its model: random verbs of producers, workers, leaders, operators and raw SQL.

Each example is one transaction that is rolled back at its end, so now() stands still and every
timestamp can be compared; time passes by moving the timestamps of rows. After each step both the
answer and all rows must be those of the model; every few steps the doctor must find nothing.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test

from tests.property.draws import INSERTS, MASKS, item_strategy
from tests.property.operators import Operators
from tests.property.producers import Producers
from tests.property.raw_sql import RawSQL
from tests.property.workers import Workers


class Queue(Producers, Workers, Operators, RawSQL):
    """The verbs, each done to the database and to the model."""

    @initialize(
        drawn=st.lists(st.tuples(INSERTS, MASKS), min_size=3, max_size=6),
        items=st.lists(item_strategy(), min_size=1, max_size=4),
        claimed=st.booleans(),
    )
    def begin(
        self, drawn: list[tuple[dict[str, Any], str]], items: list[dict[str, Any]], claimed: bool
    ) -> None:
        """Something to do from the start."""
        for values, mask in drawn:
            self.insert_by_sql(values, mask)
        for item in items:
            self.enqueue(item)
        if claimed:
            self.claim({"a": 2, "b": 2}, 4, "w/1", ())


def explore(examples: int, steps: int, *, derandomize: bool, phases: tuple[Phase, ...]) -> None:
    run_state_machine_as_test(
        Queue,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=derandomize,
            database=None,
            deadline=None,
            print_blob=True,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
@pytest.mark.timeout(600)
def test_queue_agrees_with_its_model() -> None:
    # To shrink a failure takes minutes, past any timeout: the long run below does it.
    explore(40, 30, derandomize=True, phases=(Phase.generate,))


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
@pytest.mark.timeout(3600)
def test_queue_agrees_with_its_model_for_long() -> None:
    """``AWA_PROPERTY_EXAMPLES`` says how many examples, each of up to 80 steps."""
    explore(
        int(os.environ.get("AWA_PROPERTY_EXAMPLES", "1000")),
        80,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
    )
