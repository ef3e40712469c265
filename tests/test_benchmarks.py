"""The benchmarks' own parts: turns, ratios, goals, marks, and the tables in the documentation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from benchmarks import goals, processes, report
from benchmarks.__main__ import DOCS, arguments
from benchmarks.database import Database, Server
from benchmarks.harness import Plan, Result, Series, run
from benchmarks.marks import Marks
from benchmarks.pacing import latencies, percentile
from benchmarks.peer import PEERS
from benchmarks.scenarios import SCENARIOS
from benchmarks.scenarios.processor import server_time, watching_children
from tests.conftest import PROJECT_DIR
from tests.waiting import wait_until

MACHINE = {
    "taken_at": "2030-01-01T00:00+00:00",
    "commit": "abc",
    "cores": 2,
    "processor": "a|b",
    "memory_gib": 8,
    "python": "3.13",
    "django": "6.1",
    "psycopg": "3.3",
    "postgresql": {"server_version": "15", "fsync": "on"},
    "quick": False,
    "rounds": 2,
    "minutes": 1.0,
}


def told(name: str, calls: list[str], values: list[float]) -> Callable[[], Mapping[str, float]]:
    remaining = iter(values)

    def measure() -> Mapping[str, float]:
        calls.append(name)
        return {"jobs/s": next(remaining)}

    return measure


def fail() -> Mapping[str, float]:
    raise RuntimeError("no such queue")


def result_of(calls: list[str]) -> Result:
    plan = Plan(
        title="Drain",
        contenders={
            "floor": told("floor", calls, [100, 200, 400]),
            "awa": told("awa", calls, [50, 180, 200]),
        },
        peers={"peer": told("peer", calls, [10, 30])},
    )
    return run("drain", plan, 3, lambda line: None)


def test_contenders_take_turns_and_another_one_begins_each_round() -> None:
    calls: list[str] = []
    result_of(calls)
    assert calls == ["floor", "awa", "peer", "awa", "peer", "floor", "floor", "awa"]


def test_ratios_are_taken_within_a_round() -> None:
    result = result_of([])
    assert result.value("awa", "jobs/s") == 180
    assert result.ratio("awa", "floor") == 0.5  # of 0.5, 0.9 and 0.5; of the medians it would be 0.9
    assert result.ratio("awa", "peer") == 5.5
    assert result.ratio("awa", "nobody") is None


def test_one_that_fails_is_out_and_the_others_go_on() -> None:
    plan = Plan(title="t", contenders={"awa": told("awa", [], [1, 2])}, peers={"peer": fail})
    result = run("drain", plan, 2, lambda line: None)
    assert result.series["peer"].failure == "RuntimeError: no such queue"
    assert result.value("awa", "jobs/s") == 1.5
    assert not result.is_broken
    assert run("drain", Plan(title="t", contenders={"awa": fail}), 2, lambda line: None).is_broken


def test_goals_are_met_missed_or_not_measured() -> None:
    def judged(*of: Result) -> dict[str, bool | None]:
        return {verdict.what: verdict.is_met for verdict in goals.judge(of)}

    name = "drain, one child, to the floor"
    assert judged()[name] is None
    assert judged(result_of([]))[name] is False
    fast = Result("drain", "t", {n: Series({"jobs/s": [v]}) for n, v in (("awa", 70.0), ("floor", 100.0))})
    assert judged(fast)[name] is True


@pytest.mark.parametrize(
    ("p50", "is_met"), [(2.9, True), (3.1, False)], ids=["under the limit", "above the limit"]
)
def test_a_goal_may_be_a_limit_from_above(p50: float, is_met: bool) -> None:
    result = Result("pickup", "t", {"awa": Series({"p50 ms": [p50], "p99 ms": [9.0]})})
    verdicts = {verdict.what: verdict for verdict in goals.judge([result])}
    assert verdicts["pick-up after the enqueue's commit, p50"].is_met is is_met


def test_every_goal_names_a_scenario() -> None:
    asked: set[str] = set()

    class Asked(dict[str, Result]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.add(name)
            return default

    for goal in goals.GOALS:
        goal.measure(Asked())
    assert asked <= set(SCENARIOS)


def test_the_page_gets_the_tables_between_its_marks() -> None:
    result = result_of([])
    result.series["broken"] = Series(failure="RuntimeError: a\nb")
    written = json.loads(json.dumps(report.as_json(MACHINE, [result], goals.judge([result]))))
    page = f"# Title\n\n{report.BEGIN}\nold\n{report.END}\n\nafter\n"
    once = report.into_page(page, written)
    assert report.into_page(once, written) == once
    assert "old" not in once
    assert once.startswith("# Title\n")
    assert once.endswith("\n\nafter\n")
    assert "| awa | jobs/s | 180 | 50.0 - 200 | 0.50 |" in once
    assert "| broken |  | failed | RuntimeError: a |  |" in once
    assert "| drain, one child, to the floor | at least 0.6 | 0.50 | NOT MET |" in once


def test_scenarios_taken_anew_replace_those_of_an_earlier_run() -> None:
    def taken(at: str, name: str, result: Result) -> dict[str, Any]:
        result = replace(result, name=name)
        told: dict[str, Any] = report.as_json({**MACHINE, "taken_at": at}, [result], goals.judge([result]))
        return told

    before = taken("2030-01-01", "drain", result_of([]))
    anew = taken("2030-01-02", "drain", result_of([]))
    more = taken("2030-01-03", "cost", result_of([]))
    run = report.merged(report.merged(before, anew), more)
    assert [(each["name"], each["taken_at"]) for each in run["scenarios"]] == [
        ("drain", "2030-01-02"),
        ("cost", "2030-01-03"),
    ]
    assert run["goals"] == before["goals"]
    assert [goal for goal in run["goals"] if goal["measured"] is not None]
    page = report.markdown(run)
    assert page.startswith("Taken at 2030-01-01 from abc")
    assert page.count("Taken anew at 2030-01-02 from abc.") == 1
    anew["machine"]["cores"] = 64
    with pytest.raises(ValueError, match="cores: 64 is not 2"):
        report.merged(before, anew)


def test_the_documentation_carries_the_run_in_its_json() -> None:
    page = DOCS.read_text(encoding="utf-8")
    told_by = DOCS.with_suffix(".json")
    if told_by.exists():
        assert report.into_page(page, json.loads(told_by.read_text(encoding="utf-8"))) == page
    for name in SCENARIOS:
        assert f"| `{name}` |" in page


def test_marks_of_another_process_arrive() -> None:
    with Marks() as marks:
        code = "from benchmarks.marks import mark\nfor number in range(10_000): mark(number)"
        environment = {**os.environ, **marks.environment}
        subprocess.run([sys.executable, "-c", code], env=environment, cwd=PROJECT_DIR, check=True)
        marks.wait_for(10_000, timeout=30)
        assert [number for number, _ in marks.since(0)] == list(range(10_000))
        assert marks.rate() > 0
        with pytest.raises(TimeoutError, match="10000 of 10001 jobs ran"):
            marks.wait_for(10_001, timeout=0.05)
        with pytest.raises(TimeoutError, match="10000 of 10001 jobs ran"):
            marks.wait_for(10_001, timeout=60, is_over=lambda: True)


def test_latencies_are_taken_from_the_return_and_from_the_call() -> None:
    jobs = [(0, 1_000_000, 3_000_000), (1, 10_000_000, 11_000_000)]
    found = latencies(jobs, {0: 4_000_000, 1: 16_000_000})
    assert found == {
        "p50 ms": 5.0,
        "p99 ms": 5.0,
        "p50 ms with the enqueue": 6.0,
        "p99 ms with the enqueue": 6.0,
    }
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(range(100), 0.99) == 99


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    given = arguments().parse_args(["--only", "drain, cost", "--peers", "pgqueuer"])
    assert given.only == ["drain", "cost"]
    assert given.peers == ["pgqueuer"]
    with pytest.raises(SystemExit):
        arguments().parse_args(["--only", "drains"])
    assert "'drains' is none of" in capsys.readouterr().err


def test_each_peer_has_its_script() -> None:
    for name in PEERS:
        assert (PROJECT_DIR / "benchmarks" / "peers" / f"run_{name.replace('-', '_')}.py").is_file()


def test_a_process_that_ends_too_early_is_told() -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        processes.ask([[sys.executable, "-c", "raise SystemExit(3)"]], os.environ)
    with pytest.raises(RuntimeError, match="did not start: 'no"):
        processes.ask([[sys.executable, "-c", "print('no')"]], os.environ)


def test_processes_begin_when_each_is_ready() -> None:
    code = "print('ready', flush=True); input(); print('{\"began\": 1}')"
    assert processes.ask([[sys.executable, "-c", code]] * 2, os.environ) == [{"began": 1}] * 2


def test_processor_time_of_a_child_of_a_child_and_of_the_server_is_seen(database_url: str) -> None:
    database = Database(database_url, Server(database_url))
    burn = "import sys, time\nwhile time.process_time() < 0.3: pass\nsys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}], check=True)"
    with (
        watching_children() as seen,
        subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE) as process,
    ):
        wait_until(lambda: max([*seen.values()], default=0) > 0.2)
        process.communicate()

    def used() -> float:
        before = server_time(database)
        database.one("SELECT count(*) FROM generate_series(1, 1000000)")
        return server_time(database) - before

    # Once more where a session of others ended in the middle of a look; none of a server that is elsewhere.
    assert not server_time(database) or max(used(), used()) > 0.02
    database.connection.close()
