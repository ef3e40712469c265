"""manage.py demo as a user starts it: every job is accounted for, and what is wrong is said."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from typing import Any

import pytest

from awa_django import JobState
from awa_django.models import Job, RuntimeInstance
from example_project.shop.demo.account import account
from example_project.shop.demo.load import Ending, enqueue_load
from example_project.shop.models import Order
from tests.conftest import PROJECT_DIR
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_queue"),
    pytest.mark.timeout(400),
]


def demo(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", "demo", *arguments]
    return subprocess.run(command, cwd=PROJECT_DIR, env=env, capture_output=True, text=True, timeout=180)


def test_demo_accounts_for_every_job_and_may_be_run_again(worker_env: dict[str, str]) -> None:
    env = {**worker_env, "COLUMNS": "80"}
    for _ in range(2):
        done = demo(env, "--orders", "200", "--timeout", "150")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "each as designed" in done.stdout
    # The periodic job apart: one may have come in while the worker stopped.
    states = set(Job.objects.exclude(kind="shop.count_orders").values_list("state", flat=True))
    assert states == {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.SCHEDULED}
    assert Job.objects.filter(kind="shop.count_orders", state="completed").exists()
    assert not RuntimeInstance.objects.exists()


def test_demo_fails_when_not_every_job_ended(worker_env: dict[str, str]) -> None:
    done = demo(worker_env, "--orders", "200", "--timeout", "0")
    assert done.returncode == 1
    assert "payments, flaky: all 10 should be completed after a retry" in done.stderr


def test_the_account_sees_a_job_that_is_lost_and_an_effect_that_is_missing() -> None:
    load = enqueue_load("demo-test", 20)
    receipts = load.groups[0]
    assert receipts.duplicates == 2
    Job.objects.filter(pk__in=receipts.ids).update(state="cancelled")
    Job.objects.filter(pk=receipts.ids[0]).delete()
    _, problems = account(load)
    assert f"receipts, unique: all 20 should be completed, but are 1 {Ending.LOST}, 19 cancelled" in problems
    assert any(problem.endswith("but there are 0 messages") for problem in problems)
    assert any("points should be on the orders" in problem for problem in problems)


def test_the_account_sees_jobs_that_nobody_enqueued_and_orders_that_came_back() -> None:
    load = enqueue_load("demo-test", 20)
    stranger = load.groups[0].ids.pop()
    load.rolled_back.append(Order(receipt_job_id=stranger))
    _, problems = account(load)
    assert "1 jobs bear the tag demo-test that nobody enqueued" in problems
    assert "an order that was rolled back left a job" in problems


def test_demo_web_serves_the_shop_and_the_admin_until_it_is_stopped(worker_env: dict[str, str]) -> None:
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "manage.py", "demo", "--web", "--orders", "20", "--port", str(port)],
        cwd=PROJECT_DIR,
        env=worker_env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        output: list[str] = []
        assert process.stdout is not None
        reader = threading.Thread(target=output.extend, args=(process.stdout,))
        reader.start()
        try:
            page = wait_until(
                lambda: fetch(f"http://127.0.0.1:{port}/"), timeout=60, message=lambda: "".join(output)
            )
            assert "Place order" in page
            dashboard = login(f"http://127.0.0.1:{port}/admin/login/", next_page="/admin/awa/dashboard/")
            assert "Ended per minute" in dashboard
            wait_until(lambda: Job.objects.filter(state="completed").count() > 20)
            wait_until(lambda: Order.objects.count() > 20)  # visitors order too
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(150)
            reader.join()
    assert code == 0, "".join(output)
    assert "/admin/awa/dashboard/" in "".join(output)
    assert fetch(f"http://127.0.0.1:{port}/") == ""
    assert not RuntimeInstance.objects.exists()


def test_demo_web_makes_no_public_login_without_debug(worker_env: dict[str, str]) -> None:
    done = demo({**worker_env, "DEBUG": "0", "SECRET_KEY": "of the test"}, "--web", "--orders", "20")
    assert done.returncode == 1
    assert "needs DEBUG" in done.stderr


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def fetch(url: str) -> str:
    """The page, or nothing while nobody serves it."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def login(url: str, *, next_page: str) -> str:
    """The page behind Django's login form, as the demo user."""
    opener: Any = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    form = opener.open(url, timeout=60).read().decode()
    token = form.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    fields = f"csrfmiddlewaretoken={token}&username=demo&password=demo&next={next_page}"
    return str(opener.open(url, data=fields.encode(), timeout=60).read().decode())
