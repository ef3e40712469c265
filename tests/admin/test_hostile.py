"""Hostile texts in every column, on every page: they are shown as text, and nothing else comes of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from tests.admin.hostile import (
    HOSTILE,
    WITHOUT_TEXT,
    Skeleton,
    columns_without,
    details,
    empty,
    fill,
    filtered,
    harmless,
    lists,
)
from tests.admin.routes import ACCESS

pytestmark = pytest.mark.django_db

Shape = Counter[tuple[str, tuple[str, ...]]]


def assert_harmless(response: Any, texts: tuple[str, ...]) -> Shape:
    """The page has no text of these but escaped, and no link that leaves it; its elements."""
    page = response.content.decode()
    if response.get("Content-Type", "").startswith("application/json"):
        return sum((assert_harmless_html(text, texts) for text in pieces(json.loads(page))), Shape())
    return assert_harmless_html(page, texts)


def pieces(value: Any) -> Iterator[str]:
    """The texts in JSON that scripts put into a page as HTML."""
    if isinstance(value, str) and value.lstrip().startswith("<"):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from pieces(item)


def assert_harmless_html(page: str, texts: tuple[str, ...]) -> Shape:
    for text in texts:
        if set(text) & set("<\"'"):
            assert text not in page
    skeleton = Skeleton(page)
    for link in skeleton.links:
        parts = urlsplit(link.strip("".join(map(chr, range(33)))).replace("\t", ""))
        assert parts.scheme in ("", "http", "https"), link
        assert parts.netloc in ("", "testserver"), link
    for _, names in skeleton.shape:
        assert not [name for name in names if name.startswith("on")], names
    return skeleton.shape


def visit(client: Client, urls: list[str], texts: tuple[str, ...]) -> list[Shape]:
    return [assert_harmless(client.get(url, follow=True), texts) for url in urls]


def act(client: Client, text: str, hot: int, deferred: int) -> list[Callable[[], Any]]:
    """What asks first, what echoes a mistake, and what says what was done."""
    pause = reverse("admin:awa_queuemeta_pause")
    cron = reverse("admin:awa_cronjob_changelist")
    jobs = f"{reverse('admin:awa_job_changelist')}?q={hot}"
    too_long = {"confirmed": "1", "queue": text * 200}

    def do(url: str, name: str, target: int | str, data: dict[str, str]) -> Any:
        data = {"action": name, "index": "0", "from_detail": "1", **data}
        return client.post(url, {**data, ACTION_CHECKBOX_NAME: target}, follow=True)

    return [
        lambda: client.post(pause, {"queue": text}, follow=True),
        lambda: client.post(pause, {"queue": text * 200}, follow=True),
        lambda: do(jobs, "delete_jobs", hot, {}),
        lambda: do(jobs, "move_jobs", deferred, too_long),
        lambda: do(jobs, "cancel_jobs", deferred, {"confirmed": "1"}),
        lambda: do(f"{jobs}&queue={quote(text)}", "cancel_jobs", deferred, {"select_across": "1"}),
        lambda: do(cron, "pause_schedules", text, {}),
        *(
            partial(client.post, reverse(f"admin:{name}", args=[deferred]), dict.fromkeys(access.data, text))
            for name, access in ACCESS.items()
            if name.startswith("awa_deferredjob_") and access.write is not None
        ),
    ]


def by_text(text: str, hot: int, deferred: int, turn: int | None = None) -> dict[str, Shape]:
    """The pages of which there is one for each text, as a user who is called so.

    With a turn only one of those that are like another: the texts take turns there.
    """
    user = User.objects.get(username=text[:150])
    User.objects.filter(pk=user.pk).update(is_superuser=True)
    client = Client()
    client.force_login(user)
    urls = [*details("hotjob", hot), *details("deferredjob", deferred), *filtered(text)]
    calls: dict[str, Callable[[], Any]] = {
        f"url {n}": partial(client.get, url, follow=True) for n, url in enumerate(urls)
    }
    calls |= {f"act {n}": call for n, call in enumerate(act(client, text, hot, deferred))}
    if turn is not None:
        calls = dict(list(calls.items())[turn % len(calls) :: len(calls) // 2])
    for n, url in enumerate(details("job", hot)):  # with what was done
        calls[f"detail {n}"] = partial(client.get, url, follow=True)
    refused = client.get(reverse("admin:awa_hotjob_changelist"), {text: text}, follow=True)
    assert_harmless(refused, (text,))
    return {name: assert_harmless(call(), (text,)) for name, call in calls.items()}


def test_every_column_of_text_is_tried() -> None:
    fill(HOSTILE)
    assert columns_without() == WITHOUT_TEXT


@pytest.mark.fault(
    "F84", injected="36 texts in every column of text: all pages, filters, questions, messages, JSON"
)
@pytest.mark.fault("F93", injected="the same as names of users and in what the admin's log says of jobs")
@pytest.mark.fault("U42", injected="the same, read as HTML")
def test_hostile_texts_are_only_text(root: Client) -> None:
    """The pages have the elements that they have with harmless texts, and no others."""
    plain = tuple(harmless(number) for number in range(len(HOSTILE)))
    hot, deferred = fill(plain)
    shapes = visit(root, lists(), plain)
    shapes_by_text = by_text(plain[0], hot[0], deferred[0])
    empty()
    cache.clear()  # of the dashboard
    hot, deferred = fill(HOSTILE)
    for url, shape in zip(lists(), shapes, strict=True):
        assert visit(root, [url], HOSTILE) == [shape], url
    for turn, text in enumerate(HOSTILE):
        for name, shape in by_text(text, hot[turn], deferred[turn], turn).items():
            assert shape == shapes_by_text[name], (name, text)


@pytest.mark.parametrize("echo", ["q=%ED%A0%80%3Cawa-hit%3E", "q=%FF%FE%3Cawa-hit%3E", "q=%00%3Cawa-hit%3E"])
@pytest.mark.fault("F84", injected="bytes that are no text, echoed by searches")
def test_no_text_that_cannot_be_stored_is_echoed_raw(echo: str, root: Client) -> None:
    for name in ("hotjob", "job", "uniqueclaim"):
        response = root.get(reverse(f"admin:awa_{name}_changelist") + f"?{echo}", follow=True)
        assert response.status_code == 200
        assert b"<awa-hit>" not in response.content
