"""What several statements say alike stays alike: a mend in one of them is a mend in all.

Statements are sent as their files stand, so nothing is included into several of them.
"""

from __future__ import annotations

import re

import pytest

from awa_django.storage._sql import statement

MOVES = ("cancel_deferred", "change_holder", "promote", "promote_one", "run_now", "supersede")
ENDS = ("complete", "complete_and_delete", "defer", "finish", "surrender")


@pytest.mark.parametrize(
    ("names", "first", "last"),
    [
        pytest.param(
            ("claim", "claim_behind", "claim_queue", "claim_one"),
            r"SET state = 'running'",
            r"worker = %\(worker\)s::text",
            id="what a claim sets",
        ),
        pytest.param(
            ("claim", "claim_behind", "claim_queue", "claim_one"),
            r"CASE WHEN CASE",
            r"(\w+)\.progress::text",
            id="what a claim returns of arguments and age",
        ),
        pytest.param(
            ("claim_behind", "claim_queue"),
            r"SELECT chosen.tid",
            r"before.page_count FROM before\)",
            id="what is claimed of what is due",
        ),
        pytest.param(("claim", "claim_queue"), r"AND meta.paused", r"> now\(\)\)", id="a pause"),
        pytest.param(
            ("claim", "claim_behind"),
            r"wanted AS MATERIALIZED",
            r"ORDER BY entry.turn\n\)",
            id="paused queues",
        ),
        pytest.param(ENDS, r"extract\(epoch FROM sum", r"AS run_bucket", id="what an end counts"),
        pytest.param(
            (*MOVES, "defer", "reschedule_available"),
            r"id, kind, queue",
            r"progress, result, worker",
            id="columns",
        ),
        pytest.param(
            ("catalogue_recent_kinds", "waiting_kinds"),
            r"WITH RECURSIVE",
            r"IS NOT NULL\n\)",
            id="deferred kinds",
        ),
        pytest.param(
            ("matching", "still_matching"),
            r"coalesce\(job.kind = ",
            r"%\(ended_by\)s::timestamptz, true\)",
            id="what matches",
        ),
    ],
)
def test_statements_that_say_the_same_say_it_alike(names: tuple[str, ...], first: str, last: str) -> None:
    said = {name: said_between(name, first, last) for name in names}
    assert len(said[names[0]]) > 30
    assert set(said.values()) == {said[names[0]]}, said


def said_between(name: str, first: str, last: str) -> str:
    """The text from one pattern to the other, without comments, aliases and white space."""
    text = re.sub(r"--.*", "", statement(name))
    found = re.search(f"{first}.*?{last}", text, re.DOTALL)
    assert found is not None, f"{name}.sql has no {first} ... {last}"
    return re.sub(r"\b(claimed|job|done|gone|due|moved|old)\.|\s+", "", found[0])
