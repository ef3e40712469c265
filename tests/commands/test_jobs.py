"""``awa_jobs list``, ``show`` and ``why``."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from django.utils import translation

from awa_django.management import selection
from awa_django.states import JobState
from awa_django.storage._sql import statement
from tests.commands.conftest import Manage
from tests.factories import insert_job, update_job
from tests.plans.test_plans import _nodes

ROW_KEYS = {
    "id", "state", "kind", "queue", "priority", "attempt", "max_attempts", "run_at", "created_at",
    "attempted_at", "finalized_at", "tags",
}  # fmt: skip
HOSTILE = "\x1b[2J\n999  failed  [red]forged[/red]"


def ids(ended: Any) -> list[int]:
    return [job["id"] for job in ended.document["jobs"]]


@pytest.mark.django_db
def test_list_has_the_newest_of_both_tables(manage: Manage) -> None:
    made = [insert_job(state) for state in (*JobState, *JobState)]
    found = manage("awa_jobs", "list", "--json")
    assert ids(found) == made[::-1]
    assert set(found.document["jobs"][0]) == ROW_KEYS
    assert found.document["next_after"] is None


@pytest.mark.django_db
@pytest.mark.parametrize(
    "states", [[state] for state in JobState] + [["failed", "running"], ["failed", "completed"]]
)
def test_filter_by_state(manage: Manage, states: list[str]) -> None:
    made = {insert_job(state): state for state in (*JobState, *JobState)}
    options = [word for state in states for word in ("--state", state)]
    assert ids(manage("awa_jobs", "list", "--json", *options)) == sorted(
        (job_id for job_id, state in made.items() if state in states), reverse=True
    )


@pytest.mark.django_db
def test_filters_by_queue_kind_and_tags(manage: Manage) -> None:
    both = insert_job("scheduled", queue="mail", kind="a.b", tags=["x", "y"])
    one = insert_job(queue="mail", kind="a.b", tags=["x"])
    insert_job(queue="mail", kind="a.c")
    insert_job(queue="other", kind="a.b", tags=["x", "y"])
    assert ids(manage("awa_jobs", "list", "--json", "--queue", "mail", "--kind", "a.b")) == [one, both]
    assert ids(manage("awa_jobs", "list", "--json", "--queue=mail", "--tag=x", "--tag=y")) == [both]
    assert ids(manage("awa_jobs", "list", "--json", "--kind", "nothing")) == []
    assert manage("awa_jobs", "list", "--kind", "nothing").stdout == "none\n"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "states",
    ["", "failed scheduled", "failed cancelled", "failed running"],
    ids=lambda states: states or "any",
)
@pytest.mark.parametrize("limit", [1, 3, 5])
def test_pages_follow_each_other(
    manage: Manage, monkeypatch: pytest.MonkeyPatch, states: str, limit: int
) -> None:
    """Looks of few rows end in the middle of one table or another: none is left out, none comes twice."""
    monkeypatch.setattr(selection, "LOOK", 2)
    order = (
        "cancelled running " + "failed " * 5 + "scheduled " * 5 + "failed scheduled completed running " * 2
    )
    made = [(insert_job(state), state) for state in order.split()]
    wanted = [job_id for job_id, state in reversed(made) if not states or state in states.split()]
    options = [f"--state={state}" for state in states.split()]
    seen: list[int] = []
    after: list[str] = []
    while True:
        page = manage("awa_jobs", "list", "--json", "--limit", limit, *options, *after)
        seen += ids(page)
        if page.document["next_after"] is None:
            break
        assert len(ids(page)) == limit
        after = ["--after", str(page.document["next_after"])]
    assert seen == wanted


@pytest.mark.django_db
def test_a_list_that_takes_long_says_where_to_go_on(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LOOK", 2)
    monkeypatch.setattr(selection, "WINDOW", 2)
    oldest = insert_job(kind="rare")
    newer = [insert_job() for _ in range(4)]
    ended = manage("awa_jobs", "list", "--kind", "rare")
    assert f"--after {newer[2]}" in ended.stderr
    assert ids(manage("awa_jobs", "list", "--json", "--kind", "rare")) == []
    assert ids(manage("awa_jobs", "list", "--json", "--kind", "rare", "--max-seconds", 60)) == [oldest]
    monkeypatch.setattr(selection, "WINDOW", 4)
    assert ids(manage("awa_jobs", "list", "--json", "--kind", "rare", "--after", newer[2])) == [oldest]


@pytest.mark.django_db
@pytest.mark.parametrize("options", [["--kind", "rare"], ["--queue", "rare"]], ids=" ".join)
def test_rare_deferred_jobs_are_found_in_one_look(
    manage: Manage, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(selection, "LOOK", 3)
    monkeypatch.setattr(selection, "WINDOW", 3)
    rare = [insert_job("scheduled", kind="rare", queue="rare") for _ in range(2)]
    others = [insert_job("scheduled") for _ in range(8)]
    states = ["--state", "scheduled", "--state", "retryable"]
    page = manage("awa_jobs", "list", "--json", *states, *options)
    assert (ids(page), page.document["next_after"]) == (rare[::-1], None)
    page = manage("awa_jobs", "list", "--json", *states, *options, "--after", rare[1])
    assert ids(page) == rare[:1]
    # As many as a look: they are met on the way from the newest down.
    rare.append(insert_job("scheduled", kind="rare", queue="rare"))
    page = manage("awa_jobs", "list", "--json", *states, *options)
    assert (ids(page), page.document["next_after"]) == ([rare[-1]], others[-2])


@pytest.mark.django_db
def test_screen_shows_when_and_what_is_hostile_as_text(
    manage: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    insert_job(kind=HOSTILE, queue=HOSTILE, tags=[HOSTILE])
    insert_job("scheduled")
    insert_job("failed")
    for terminal in (False, True):
        text = manage("awa_jobs", "list", terminal=terminal).stdout
        assert "\x1b[2J" not in text
        assert text.count(r"\x1b[2J\n999  failed  [red]forged[/red]") == 3
        assert not any(line.startswith("999") for line in text.splitlines())
        assert "due in 59 min" in text
        assert re.search(r"ended .* ago", text)


@pytest.mark.django_db
def test_lists_show_no_arguments(manage: Manage) -> None:
    insert_job(args={"name": "unseen"}, metadata={"name": "unseen"})
    assert "unseen" not in manage("awa_jobs", "list").stdout + manage("awa_jobs", "list", "--json").stdout


@pytest.mark.django_db
def test_show_has_everything_exact_and_masked(manage: Manage) -> None:
    job_id = insert_job(
        "failed",
        kind="shop.pay",
        queue="mail",
        args={"password": "hunter22", "note": "a"},
        errors=[
            {"at": "2026-01-01T10:00:00+00:00", "attempt": 1, "run_lease": 1, "error": "old", "class": "E"},
            {
                "attempt": 2,
                "error": "login with password=hunter22",
                "traceback": "line\nof it",
                "by": "ann",
                "extra": {"token": "t0ps3cret", "n": 1},
            },
        ],
        unique_key=b"k" * 16,
        unique_states="11101001",
        tags=["x"],
        worker="w-1",
        result={"ok": False},
    )
    update_job(job_id, args="""args || '{"big": 123456789012345678901234567890, "exact": 0.10}'""")
    shown = manage("awa_jobs", "show", job_id, "--json")
    job = shown.document
    assert (job["id"], job["kind"], job["queue"], job["state"]) == (job_id, "shop.pay", "mail", "failed")
    assert '"big": 123456789012345678901234567890' in shown.stdout
    assert '"exact": 0.10' in shown.stdout
    assert job["args"]["password"] == "********"
    assert (job["result"], job["progress"], job["tags"], job["worker"]) == ({"ok": False}, None, ["x"], "w-1")
    assert (job["unique_key"], job["holder_id"]) == ((b"k" * 16).hex(), None)
    assert job["unique_states"] == ["scheduled", "available", "running", "retryable", "waiting_external"]
    newest, oldest = job["errors"]
    assert (newest["by"], newest["traceback"], newest["more"]["extra"]["n"]) == ("ann", "line\nof it", 1)
    assert (oldest["error"], oldest["at"], oldest["more"]) == ("old", "2026-01-01T10:00:00+00:00", None)
    text = manage("awa_jobs", "show", job_id).stdout
    for secret in ("hunter22", "t0ps3cret"):
        assert secret not in shown.stdout + text
    for expected in (
        "123456789012345678901234567890",
        "login with password=********",
        "    line",
        "E",
        "ann",
    ):
        assert expected in text


@pytest.mark.django_db
def test_show_tells_all_instants_alike(manage: Manage) -> None:
    instants = [
        "2026-01-01T10:00:00.004512+00:00",
        "0001-01-01T00:00:00+14:00",
        "2026-13-01T10:00:00Z",
        "soon",
    ]
    entries = [{"at": at, "outcome": "failed"} for at in instants]
    job_id = insert_job("failed", attempt=2, run_lease=1, errors=entries)
    lines = manage("awa_jobs", "show", job_id).stdout.splitlines()
    assert [line for line in lines if line.startswith("error")] == [
        "error: failed, soon",
        "error: failed, 2026-13-01T10:00:00Z",
        "error: failed, 0001-01-01T00:00:00+14:00",
        "error: failed, 2026-01-01 10:00:00 UTC",
    ]
    assert any(line.endswith(", 1 claim") for line in lines)


@pytest.mark.django_db
def test_show_stands_whatever_is_in_the_errors(manage: Manage) -> None:
    job_id = insert_job("failed", kind=HOSTILE, args={HOSTILE: HOSTILE})
    entry = r"""{"error": {"a": 1}, "at": 5, "by": "\u001b[2Jx"}"""
    update_job(job_id, errors=f"""ARRAY['"text"', '[1]', '{entry}']::jsonb[]""")
    newest, *others = manage("awa_jobs", "show", job_id, "--json").document["errors"]
    assert (newest["error"], newest["at"], newest["by"]) == ({"a": 1}, 5, "\x1b[2Jx")
    assert [(entry["error"], entry["more"]) for entry in others] == [(None, [1]), (None, "text")]
    for terminal in (False, True):
        text = manage("awa_jobs", "show", job_id, terminal=terminal).stdout
        assert "\x1b[2J" not in text
        assert not any(line.startswith("999") for line in text.splitlines())


@pytest.mark.django_db
def test_show_stands_errors_that_python_cannot_read(manage: Manage) -> None:
    job_id = insert_job("failed")
    update_job(job_id, errors="ARRAY[(repeat('[', 2000) || repeat(']', 2000))::jsonb]")
    for options in ((), ("--json",)):
        assert manage("awa_jobs", "show", job_id, *options).stdout.count("[") >= 2_000


@pytest.mark.django_db
def test_why_says_reasons_with_advice(manage: Manage) -> None:
    job_id = insert_job(queue="nobody-serves-it")
    [reason, *_] = manage("awa_jobs", "why", job_id, "--json").document["reasons"]
    assert set(reason) == {"code", "text", "advice", "job_id"}
    text = manage("awa_jobs", "why", job_id).stdout
    assert reason["text"] in text
    assert reason["advice"] in text
    with translation.override("de"):  # of the project: what else a command says is English, too
        assert manage("awa_jobs", "why", job_id).stdout == text


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["show", "why"])
def test_unknown_job_is_said(manage: Manage, verb: str) -> None:
    ended = manage("awa_jobs", verb, 4_711_000_000, "--json")
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.error == "job 4711000000 does not exist (or was deleted after its retention)"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("list --limit 0", "1 or more"),
        ("list --limit 1001", "1,000 at most"),
        ("list --after x", "no id of a job"),
        ("list --state gone", "invalid choice"),
        ("show x", "no id of a job"),
        ("why -1", "no id of a job"),
        ("cancel", "ids of jobs, or --all-matching"),
        ("cancel 1 --queue mail", "needs --all-matching"),
        ("cancel 1 --all-matching --queue mail", "not both"),
        ("delete --all-matching --yes", "nothing is done to all jobs"),
        ("retry --all-matching --state available", "invalid choice"),
        ("cancel --all-matching --queue mail", "say --yes"),
        ("reschedule 1 --at soon", "no instant"),
        ("reschedule 1", "--at"),
        ("set-priority 1 --priority 1000", "between -98 and 102"),
        ("move 1 --to " + "x" * 201, "1 to 200 characters"),
    ],
)
def test_misuse_is_said_in_one_line(manage: Manage, arguments: str, error: str) -> None:
    ended = manage("awa_jobs", "--json", *arguments.split())
    assert error in ended.error
    assert "JobState" not in ended.error  # choices are told as they are given
    assert "\n" not in ended.error
    assert ended.stdout == ""


@pytest.mark.parametrize(
    "arguments", ["list", "show 1", "why 1", "cancel 1", "retry --all-matching --queue q --yes"]
)
def test_database_that_is_down_is_said_in_one_line(manage: Manage, dead_alias: str, arguments: str) -> None:
    ended = manage("awa_jobs", *arguments.split(), "--database", dead_alias)
    assert (ended.code, ended.stdout) == (3, "")
    assert ended.error.startswith("the database could not be asked: ")
    assert "\n" not in ended.error


@pytest.mark.parametrize(
    ("states", "indexes"),
    [
        ({"in_hot": True, "in_deferred": True}, {"jobs_hot_pkey", "scheduled_jobs_pkey"}),
        ({"rare_states": ["failed", "cancelled"]}, {"jobs_hot_attention"}),
        ({"in_running": True}, {"jobs_hot_running"}),
        ({"in_deferred": True}, {"scheduled_jobs_kind_due"}),
        ({"in_deferred": True, "kind": None, "queue": "q"}, {"scheduled_jobs_queue_due"}),
    ],
    ids=["all", "rare", "running", "kind", "queue"],
)
def test_list_reads_by_index(
    fresh_tables: None, database_url: str, states: dict[str, Any], indexes: set[str]
) -> None:
    params = {
        "before_id": 2**62, "row_count": 500, "row_limit": 21, "in_hot": False, "in_running": False,
        "in_deferred": False, "rare_states": [], "states": None, "kind": "k", "queue": None, "tags": None,
        **states,
    }  # fmt: skip
    with psycopg.connect(database_url) as session:
        for table in ("jobs_hot", "scheduled_jobs"):
            session.execute(
                f"INSERT INTO awa.{table} (kind) SELECT 'k' FROM generate_series(1, 20000)".encode()
            )
        session.execute(
            "UPDATE awa.jobs_hot SET state = 'failed', finalized_at = now() WHERE id % 10 = 0;"
            "UPDATE awa.jobs_hot SET state = 'running' WHERE id % 100 = 1;"
            "ANALYZE awa.jobs_hot; ANALYZE awa.scheduled_jobs"
        )
        row = session.execute("EXPLAIN (FORMAT JSON) " + statement("list_jobs"), params).fetchone()
        session.rollback()
    assert row is not None
    nodes = list(_nodes(row[0][0]["Plan"]))
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan"]
    assert indexes <= {node["Index Name"] for node in nodes if "Index Name" in node}
