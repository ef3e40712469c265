from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from awa_django import failpoints
from awa_django.failpoints import FailpointError


@pytest.fixture(autouse=True)
def _off() -> object:
    yield
    failpoints._failpoints = None


def set_failpoints(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, text)
    failpoints.load()


def test_nothing_happens_when_off() -> None:
    for name in failpoints.NAMES:
        failpoints.hit(name)


def test_raise_acts_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    set_failpoints(monkeypatch, "after_claim=raise*2; in_drain=delay:0")
    for _ in range(2):
        with pytest.raises(FailpointError, match="after_claim"):
            failpoints.hit("after_claim")
    failpoints.hit("after_claim")
    failpoints.hit("before_finish")


def test_flag_file_makes_it_act_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    set_failpoints(monkeypatch, f"in_cron=raise@{flag}")
    with pytest.raises(FailpointError):
        failpoints.hit("in_cron")
    assert flag.exists()
    failpoints.load()  # as another process would
    failpoints.hit("in_cron")


def test_delay_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    set_failpoints(monkeypatch, "in_heartbeat=delay:0.05")
    before = time.monotonic()
    failpoints.hit("in_heartbeat")
    assert time.monotonic() - before >= 0.05


@pytest.mark.parametrize(("action", "code"), [("kill", -9), ("exit:7", 7)])
def test_kill_and_exit_end_the_process(action: str, code: int) -> None:
    program = (
        "from awa_django import failpoints; failpoints.load(); failpoints.hit('after_finish'); print('lives')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={failpoints.VARIABLE: f"after_finish={action}", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
    )
    assert (done.returncode, done.stdout) == (code, b"")


@pytest.mark.parametrize("text", ["nowhere=kill", "after_claim", "after_claim=explode", "after_claim=kill*x"])
def test_wrong_text_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, text)
    with pytest.raises(ValueError, match="is no failpoint"):
        failpoints.load()
