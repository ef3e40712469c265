"""Who sees and does what: every URL and every action, by every method, for every kind of user."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import reverse

from awa_django.admin.base import ListOnlyAdmin
from awa_django.models import Job, QueueMeta
from tests.admin.conftest import Login
from tests.admin.routes import ACCESS, ACTIONS, MARK, PAGES, ROUTES, Access, insert_rows
from tests.factories import insert_job

pytestmark = pytest.mark.django_db

UNSAFE = ("post", "put", "patch", "delete")
NAMES = sorted(ROUTES)
FORM_DATA = {"priority": "3", "run_at_0": "2030-01-01", "run_at_1": "10:00", "queue": "other"}
CASES = [
    (name, action)
    for name, page in sorted(PAGES.items())
    for action in ((getattr(a, "__name__", a)) for a in page.actions or ())
]


def row_changes() -> int:
    """Rows that this transaction has inserted, updated or deleted so far, but for sessions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables "
            "WHERE relname <> 'django_session'"
        )
        return int(cursor.fetchone()[0])


def send(client: Client, method: str, url: str, data: dict[str, Any]) -> Any:
    if method in ("put", "patch", "delete"):
        return getattr(client, method)(url, data, content_type="application/json")
    return getattr(client, method)(url, data)


def assert_refused(client: Client, methods: Iterable[str], url: str, data: Any, statuses: set[int]) -> None:
    before = row_changes()
    for method in methods:
        response = send(client, method, url, dict(data))
        assert response.status_code in statuses, (method, response.status_code)
        assert MARK.encode() not in response.content.replace(url.encode(), b""), (method, url)
    assert row_changes() == before


def assert_allowed(client: Client, access: Access, url: str) -> None:
    before = row_changes()
    if access.read is not None:
        response = client.get(url)
        assert response.status_code == 200
        assert row_changes() == before
    if access.write is not None:
        assert client.post(url, dict(access.data)).status_code == 302
        assert row_changes() > before


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """No traceback for each refusal: writing them takes longer than refusing."""
    caplog.set_level(logging.CRITICAL, "django.request")
    caplog.set_level(logging.CRITICAL, "django.security.csrf")


@pytest.fixture
def grant(login: Login) -> Callable[[Iterable[str]], Client]:
    """``grant(codenames)`` is a staff member, always the same one, with exactly these permissions."""
    client = login()
    user = User.objects.get()
    known = dict(Permission.objects.filter(content_type__app_label="awa").values_list("codename", "pk"))

    def with_permissions(codenames: Iterable[str]) -> Client:
        user.user_permissions.set([known[codename] for codename in codenames])
        return client

    return with_permissions


def all_permissions() -> set[str]:
    return set(Permission.objects.filter(content_type__app_label="awa").values_list("codename", flat=True))


def test_every_url_and_every_action_says_who_it_is_for() -> None:
    assert set(ROUTES) == set(ACCESS)
    assert {action for _, action in CASES} == set(ACTIONS)
    known = all_permissions()
    named = [permissions for access in ACCESS.values() for permissions in (access.read, access.write)]
    seen = set().union(*filter(None, named)) | set(ACTIONS.values())
    assert known - seen == {"view_jobkind", "view_queuestats"}  # have no page
    assert seen <= known
    assert not [name for name in known if name.startswith(("add_", "change_"))]


def test_every_page_of_the_app_only_lists() -> None:
    for page in PAGES.values():
        assert isinstance(page, ListOnlyAdmin)
        names = {str(url.name) for url in page.get_urls()}
        assert not any(name.endswith(("_add", "_delete", "_history")) for name in names)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.fault(
    "F82", injected="every URL by every method, as nobody, a customer, dismissed staff with all permissions"
)
def test_a_url_is_for_nobody_from_outside(name: str, login: Login) -> None:
    insert_rows()
    url, data = ROUTES[name].url(), ACCESS[name].data
    customer = login(*all_permissions(), is_staff=False)
    dismissed = login(*all_permissions())
    User.objects.filter(is_staff=True).update(is_active=False)
    for client in (Client(), customer, dismissed):
        assert_refused(client, ("get", "head", *UNSAFE), url, data, {302})
        assert reverse("admin:login") in client.get(url)["Location"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.fault(
    "F82",
    injected="every URL by every method, as staff without, with each single, with all but the needed right",
)
def test_a_url_needs_its_own_permission(name: str, grant: Callable[[Iterable[str]], Client]) -> None:
    insert_rows()
    url, access = ROUTES[name].url(), ACCESS[name]
    assert_refused(grant(()), ("get", "head", *UNSAFE), url, access.data, {403, 405})
    everything = all_permissions()
    for needed, method in ((access.read, "get"), (access.write, "post")):
        if needed is None:
            if method == "get" or not name.endswith("_changelist"):  # a list takes actions
                assert_refused(grant(everything), (method,), url, access.data, {405})
            continue
        roles = [{permission} for permission in everything] + [everything - {lost} for lost in needed]
        for role in roles:
            if not needed <= role:
                assert_refused(grant(role), (method,), url, access.data, {403, 405})
    assert_refused(grant(everything), ("put", "patch", "delete"), url, access.data, {405})
    assert_allowed(grant((access.read or frozenset()) | (access.write or frozenset())), access, url)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.fault("F83", injected="every URL as a superuser, without a CSRF token and with a wrong one")
def test_a_superuser_may_but_not_without_csrf(name: str, root: Client) -> None:
    insert_rows()
    url, access = ROUTES[name].url(), ACCESS[name]
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = root.cookies
    assert_refused(strict, UNSAFE, url, access.data, {403})
    assert_refused(strict, ("post",), url, {**access.data, "csrfmiddlewaretoken": "x" * 64}, {403})
    assert_allowed(root, access, url)


@pytest.mark.parametrize("suffix", ["add/", "{}/delete/", "{}/history/", "{}/"])
@pytest.mark.parametrize("name", sorted(PAGES))
@pytest.mark.fault("F82", injected="Django's URLs to add, change and delete")
def test_no_other_url_exists(name: str, suffix: str, root: Client) -> None:
    url = reverse(f"admin:awa_{name}_changelist") + suffix.format(insert_job())
    for method in ("get", *UNSAFE):
        assert send(root, method, url, {}).status_code == 404


@pytest.mark.fault("F82", injected="the ids of jobs of a table that may not be seen, guessed")
def test_a_viewer_of_one_table_is_not_told_of_the_other(login: Login) -> None:
    hot, deferred = (insert_job(state, kind=f"{MARK}.kind") for state in ("available", "scheduled"))
    for name, other in (("hotjob", deferred), ("deferredjob", hot)):
        viewer = login(f"view_{name}")
        there = viewer.get(reverse(f"admin:awa_{name}_change", args=[other]))
        nowhere = viewer.get(reverse(f"admin:awa_{name}_change", args=[other + 1000]))
        assert there.status_code == nowhere.status_code == 404
        assert MARK.encode() not in there.content


def target_of(name: str, action: str) -> int | str:
    """What the action on this page would change: the id of a job, or the name of a schedule."""
    if name == "cronjob":
        paused = action == "resume_schedules"
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO awa.cron_jobs (name, cron_expr, kind, paused) VALUES ('a', '@daily', %s, %s)",
                [f"{MARK}.kind", paused],
            )
        return "a"
    if name == "deferredjob" or action == "run_jobs_now":
        return insert_job("scheduled", kind=f"{MARK}.kind")
    return insert_job("failed" if action == "retry_jobs" else "available", kind=f"{MARK}.kind")


def post_action(
    client: Client, name: str, action: str, target: int | str, *, method: str = "post", **more: str
) -> Any:
    data = {"action": action, ACTION_CHECKBOX_NAME: [target], "index": "0", "confirmed": "1", **FORM_DATA}
    return getattr(client, method)(reverse(f"admin:awa_{name}_changelist"), {**data, **more})


@pytest.mark.parametrize(("name", "action"), CASES)
@pytest.mark.fault(
    "F82", injected="every action without its permission, without that to see its list, by GET"
)
def test_an_action_needs_its_own_permission(
    name: str, action: str, grant: Callable[[Iterable[str]], Client]
) -> None:
    target = target_of(name, action)
    view, needed, everything = f"view_{name}", ACTIONS[action], all_permissions()
    for role in ({view}, everything - {needed}):
        client = grant(role)
        count = row_changes()
        assert action not in client.get(reverse(f"admin:awa_{name}_changelist")).content.decode()
        for more in ({}, {"select_across": "1"}):
            assert post_action(client, name, action, target, **more).status_code in (200, 302)
            assert row_changes() == count
    for role in ({needed}, everything - {view}):
        client = grant(role)
        count = row_changes()
        response = post_action(client, name, action, target)
        assert response.status_code == 403
        assert MARK.encode() not in response.content
        assert row_changes() == count
    client = grant({view, needed})
    count = row_changes()
    post_action(client, name, action, target, method="get")
    assert row_changes() == count
    assert post_action(client, name, action, target).status_code == 302
    assert row_changes() > count


@pytest.mark.parametrize(("name", "action"), CASES)
@pytest.mark.fault("F83", injected="every action with its permission, without a CSRF token")
def test_an_action_needs_csrf(name: str, action: str, login: Login) -> None:
    target = target_of(name, action)
    client = login(f"view_{name}", ACTIONS[action], enforce_csrf_checks=True)
    count = row_changes()
    assert post_action(client, name, action, target).status_code == 403
    assert row_changes() == count


@pytest.mark.parametrize("action", ["delete_selected", "has_view_permission", "__class__", "response_action"])
@pytest.mark.fault("F82", injected="names of actions that no page offers")
def test_there_is_no_hidden_action(action: str, root: Client) -> None:
    insert_rows()
    count = row_changes()
    for name in sorted(PAGES):
        post_action(root, name, action, insert_job("failed"))
    assert row_changes() == count + len(PAGES)  # the jobs inserted here


@pytest.mark.fault("F83", injected="a double click on an action, and on a pause")
def test_a_double_click_does_once(root: Client) -> None:
    job_id = insert_job("failed")
    for _ in range(2):
        assert post_action(root, "hotjob", "retry_jobs", job_id).status_code == 302
    assert Job.objects.filter(state="available").count() == Job.objects.count() == 1
    for _ in range(2):
        root.post(reverse("admin:awa_queuemeta_pause"), {"queue": "mail"})
    assert QueueMeta.objects.filter(queue="mail", paused=True).count() == 1


def test_buttons_show_only_what_the_user_may_do(login: Login) -> None:
    job_id = insert_job()
    detail = reverse("admin:awa_job_change", args=[job_id])
    page = login("view_job", "cancel_job").get(detail).content.decode()
    assert "cancel_jobs" in page
    assert "set_priority_of_jobs" not in page
    viewed = login("view_job").get(detail).content.decode()
    assert "<button" not in viewed.split('id="content-main"')[1].split("<footer")[0]
    insert_job(queue="mail")
    queues = reverse("admin:awa_queuemeta_changelist")
    assert ">Pause<" not in login("view_queuemeta").get(queues).content.decode()
    assert ">Pause<" in login("view_queuemeta", "pause_queue").get(queues).content.decode()
