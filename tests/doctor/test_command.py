"""awa_doctor: what it prints, its JSON, and its exit codes."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.doctor.violations import in_both_tables, overdue_deferred


@pytest.mark.django_db
def test_command_is_content_with_a_sound_queue() -> None:
    output = StringIO()
    call_command("awa_doctor", stdout=output)
    assert "all invariants hold" in output.getvalue()


@pytest.mark.django_db
def test_command_names_the_violation_and_exits_with_1() -> None:
    [job_id] = in_both_tables()
    output = StringIO()
    with pytest.raises(SystemExit) as raised:
        call_command("awa_doctor", stdout=output)
    assert raised.value.code == 1
    assert f"I1: jobs are in both tables (1): {job_id}" in output.getvalue()


@pytest.mark.django_db
def test_command_prints_json() -> None:
    [job_id] = in_both_tables()
    output = StringIO()
    with pytest.raises(SystemExit):
        call_command("awa_doctor", "--json", stdout=output)
    [finding] = [each for each in json.loads(output.getvalue())["findings"] if not each["is_warning"]]
    assert (finding["invariant"], finding["examples"], finding["is_warning"]) == ("I1", [str(job_id)], False)


@pytest.mark.django_db
def test_warning_alone_is_no_failure() -> None:
    overdue_deferred()
    output = StringIO()
    call_command("awa_doctor", stdout=output)
    assert "W3" in output.getvalue()


@pytest.mark.django_db
def test_command_says_what_it_did_not_look_at() -> None:
    def printed(*arguments: str) -> str:
        output = StringIO()
        call_command("awa_doctor", *arguments, stdout=output)
        return output.getvalue()

    quick = printed("--quick")
    assert "Nothing found: all invariants that were asked for hold." in quick
    assert "Not looked at" in quick
    assert len(json.loads(printed("--quick", "--json"))["left_out"]) == 3
    for whole in ("--full", "--max-seconds=300"):
        assert "Not looked at" not in printed(whole)
        assert json.loads(printed(whole, "--json"))["left_out"] == []


@pytest.mark.django_db
@pytest.mark.parametrize("arguments", [["--quick", "--full"], ["--max-seconds", "0"]], ids=" ".join)
def test_command_refuses_bounds_that_mean_nothing(arguments: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("awa_doctor", *arguments)
