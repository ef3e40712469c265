"""The page that edits arguments: masks, exact numbers, what is refused, and what is logged."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from awa_django import JobContext, job, registry
from awa_django.management.detail import document
from awa_django.models import HotJob
from awa_django.why import explain
from tests.admin.conftest import Login
from tests.factories import insert_job, reload_job, update_job

pytestmark = pytest.mark.django_db
MASK = "********"


def url_of(job_id: int, model: str = "hotjob", view: str = "arguments") -> str:
    return reverse(f"admin:awa_{model}_{view}", args=[job_id])


def opened(client: Client, url: str) -> dict[str, str]:
    """What the form has when it is opened."""
    page = client.get(url).content.decode()
    area = re.search(r"<textarea[^>]*>\n?(.*?)</textarea>", page, re.DOTALL)
    seen = re.search(r'name="seen" value="([^"]+)"', page)
    assert area
    assert seen
    return {"args": html.unescape(area[1]), "seen": seen[1]}


def said(response: Any) -> str:
    return [str(message) for message in get_messages(response.wsgi_request)][-1]


def test_a_value_is_changed_and_what_is_masked_or_large_stays(root: Client) -> None:
    args = {"order_id": 2**70, "to": "ann", "api_key": "k-1234567", "note": "see k-1234567"}
    job_id = insert_job("failed", args=args)
    form = opened(root, url_of(job_id))
    assert "k-1234567" not in form["args"]
    assert form["args"].count(MASK) == 2
    assert str(2**70) in form["args"]
    response = root.post(url_of(job_id), {**form, "args": form["args"].replace('"ann"', '"bob"')})
    assert response["Location"] == url_of(job_id, view="change")
    assert said(response) == f"The arguments of job {job_id} were changed."
    assert reload_job(job_id).args == {**args, "to": "bob"}
    assert LogEntry.objects.get().change_message == 'Edit arguments: to "ann" to "bob".'


def test_a_secret_that_is_written_out_is_stored_and_not_logged(root: Client) -> None:
    job_id = insert_job("scheduled", args={"api_key": "old-secret", "n": 1})
    form = opened(root, url_of(job_id, "deferredjob"))
    root.post(url_of(job_id, "deferredjob"), {**form, "args": '{"api_key": "new-secret", "n": 1, "x": [1]}'})
    assert reload_job(job_id).args == {"api_key": "new-secret", "n": 1, "x": [1]}
    assert LogEntry.objects.get().change_message == "Edit arguments: api_key changed; x nothing to [1]."


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("{", "no JSON"),
        ("[]", "must be a JSON object"),
        ('{"a": 1, "b": "********"}', "b has ********"),
        ("", "This field is required"),
    ],
)
def test_what_cannot_be_saved_is_said_beside_what_was_typed(typed: str, problem: str, root: Client) -> None:
    job_id = insert_job(args={"a": 1})
    form = opened(root, url_of(job_id))
    response = root.post(url_of(job_id), {**form, "args": typed})
    assert response.status_code == 200
    page = html.unescape(response.content.decode())
    assert problem in page
    assert f"{typed}</textarea>" in page
    assert reload_job(job_id).args == {"a": 1}


def test_the_form_sent_twice_and_the_form_sent_late(root: Client) -> None:
    job_id = insert_job(args={"a": 1})
    form = opened(root, url_of(job_id))
    data = {**form, "args": '{"a": 2}'}
    root.post(url_of(job_id), data)
    assert said(root.post(url_of(job_id), data)) == f"Job {job_id} has these arguments already."
    late = root.post(url_of(job_id), {**form, "args": '{"a": 3}'})
    assert "has got other arguments meanwhile" in said(late)
    assert late["Location"] == url_of(job_id)
    assert reload_job(job_id).args == {"a": 2}
    assert LogEntry.objects.count() == 1


def test_a_job_that_began_meanwhile_is_left(root: Client) -> None:
    job_id = insert_job(args={"a": 1})
    form = opened(root, url_of(job_id))
    update_job(
        job_id, state="'running'", attempt="1", run_lease="1", heartbeat_at="now()", attempted_at="now()"
    )
    response = root.post(url_of(job_id), {**form, "args": "{}"})
    assert said(response) == f"Job {job_id} is running: its arguments cannot be changed."
    assert reload_job(job_id).args == {"a": 1}


def test_a_unique_key_is_not_worked_round(root: Client) -> None:
    job_id = insert_job(args={"a": 1}, unique_key=bytes(16), unique_states="11101001")
    form = opened(root, url_of(job_id))
    response = root.post(url_of(job_id), {**form, "args": "{}"})
    assert "has a unique key, and it cannot be told here" in said(response)
    assert reload_job(job_id).args == {"a": 1}
    assert "left alone: has a unique key" in LogEntry.objects.get().change_message


def test_arguments_too_large_for_a_page_are_not_edited_in_part(root: Client) -> None:
    job_id = insert_job(args={"a": "x" * 120_000})
    assert "too large" in said(root.get(url_of(job_id)))
    assert root.get(url_of(10**15)).status_code == 404


def test_the_page_shows_what_the_kind_declares(root: Client) -> None:
    @job(kind="tests.declared", takes_context=True)
    def declared(context: JobContext, order_id: int, to: str = "x", *, plain=None) -> None:  # type: ignore[no-untyped-def]
        """Never run."""

    job_id = insert_job(kind="tests.declared", args={"order_id": 1})
    try:
        page = html.unescape(root.get(url_of(job_id)).content.decode())
    finally:
        registry.unregister(declared.handler)
    assert "order_id: int, to: str = 'x', plain=None" in page
    assert "No handler of this kind" in root.get(url_of(job_id)).content.decode()


def test_a_job_of_a_list_that_the_user_may_not_see_is_not_shown_on_the_page_of_another(login: Login) -> None:
    hot, deferred = insert_job("failed"), insert_job("scheduled")
    for job_id, own, other in ((hot, "hotjob", "deferredjob"), (deferred, "deferredjob", "hotjob")):
        stranger, reader = login(f"view_{other}", "edit_job_args"), login("view_job", "edit_job_args")
        assert stranger.get(url_of(job_id, other)).status_code == 404
        assert stranger.post(url_of(job_id, other), {"args": '{"a": 1}', "seen": "x"}).status_code == 404
        assert reader.get(url_of(job_id, "job")).status_code == 200
        assert login(f"view_{own}", "edit_job_args").get(url_of(job_id, own)).status_code == 200


def test_the_button_is_there_for_those_who_may_and_where_it_helps(login: Login) -> None:
    failed, running = insert_job("failed"), insert_job("running")
    editor, viewer = login("view_hotjob", "edit_job_args"), login("view_hotjob")
    button = "Edit arguments"
    assert button in editor.get(url_of(failed, view="change")).content.decode()
    assert button not in editor.get(url_of(running, view="change")).content.decode()
    assert button not in viewer.get(url_of(failed, view="change")).content.decode()
    assert viewer.get(url_of(failed)).status_code == 403
    assert login("edit_job_args").get(url_of(failed)).status_code == 403
    assert (
        login("view_hotjob", "edit_job_args", enforce_csrf_checks=True).post(url_of(failed)).status_code
        == 403
    )
    assert HotJob.objects.filter(args={}).count() == 2


@pytest.mark.parametrize("state", ["failed", "retryable"])
@pytest.mark.fault("F87", injected="a secret in an old traceback, after it was replaced in the arguments")
def test_a_secret_that_was_replaced_stays_masked_in_what_is_left_of_it(root: Client, state: str) -> None:
    """The traceback of an old attempt tells the old value; and so may an argument that is none."""
    args = {"api_key": "first-12345", "card": "4000-1234", "note": "", "n": 1}
    entry = {"error": "first-12345 was refused", "class": "E", "traceback": "pay('first-12345', '4000-1234')"}
    marked = {"awa:secret": ["card"]}
    job_id = insert_job(state, args=args, errors=[entry], metadata=marked, progress={"message": "4000-1234"})
    model = "hotjob" if state == "failed" else "deferredjob"
    url = url_of(job_id, model)
    for text in (
        '{"api_key": "second-12345", "card": "4000-5678", "note": "not first-12345", "n": 1}',
        '{"api_key": "third-12345", "card": "4000-5678", "note": "", "n": 1}',
    ):
        root.post(url, {**opened(root, url), "args": text})
    assert reload_job(job_id).args["api_key"] == "third-12345"
    texts = [root.get(url_of(job_id, model, view)).content.decode() for view in ("change", "arguments")]
    texts += [explain(job_id)[0].text, *(log.change_message for log in LogEntry.objects.all())]
    texts.append(str(document("default", job_id)))
    for text in texts:
        for value in ("first-12345", "second-12345", "third-12345", "4000-1234", "4000-5678"):
            assert value not in text, text
    assert "was refused" in texts[0]
    assert reload_job(job_id).metadata == {
        "awa:secret": ["card", {"former": ["4000-1234", "first-12345"]}, {"former": ["second-12345"]}]
    }


def test_a_job_without_secrets_remembers_nothing(root: Client) -> None:
    job_id = insert_job(args={"to": "ann", "pin": 1234567}, metadata={"mine": 1})
    form = opened(root, url_of(job_id))
    root.post(url_of(job_id), {**form, "args": '{"to": "bob", "pin": 1}'})
    assert reload_job(job_id).metadata == {"mine": 1}
