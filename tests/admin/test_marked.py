"""Every word that the admin says of itself goes through gettext.

The pages are shown in a language in which every message stands between marks: what is outside of them
is data, a number, or a word that nobody can translate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.test import Client
from django.urls import reverse
from django.utils import translation
from django.utils.functional import Promise
from django.utils.translation import trans_real

from awa_django import operations
from awa_django.admin.job_actions import JOB_ACTIONS
from tests.admin import hostile
from tests.admin.routes import PAGES
from tests.factories import insert_job

pytestmark = pytest.mark.django_db

OPEN, CLOSE = "\u00ab", "\u00bb"
LANGUAGE = "eo"  # of which Django has translations, and this package none
SHOWN_ATTRIBUTES = {"title", "alt", "aria-label", "placeholder", "label"}
# Units, percentiles, zones of time, and what is the same in every language.
UNTRANSLATED = re.compile(r"\b(ms|s|min|h|d|p50|p95|p99|UTC|UTF|JSON|AWA|PostgreSQL|x)\b")
# Texts of rows, the apps beside this one, and what is named as the database names it.
DATA = re.compile(
    r"word\d*|tests-worker|user-?\d*|root|Django|Shop|Orders?|Messages?|\w+_\w+|"
    r"\b(cron|prune|promote|rescue|stats|leaders|waiters|vacuum|maintain)\b"
)


class Marks(trans_real.DjangoTranslation):
    """A catalogue that has every message."""

    def gettext(self, message: str) -> str:
        return f"{OPEN}{message}{CLOSE}"

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return f"{OPEN}{msgid1 if n == 1 else msgid2}{CLOSE}"

    def pgettext(self, context: str, message: str) -> str:
        return self.gettext(message)


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is said inside is marked."""
    monkeypatch.setitem(trans_real._translations, LANGUAGE, Marks(LANGUAGE))  # type: ignore[attr-defined]
    with translation.override(LANGUAGE):
        yield


class Said(HTMLParser):
    """What a page shows to people, but for code and scripts."""

    SILENT = {"script", "style", "code", "pre", "textarea"}

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.attributes: list[str] = []
        self._silent = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in self.SILENT
        is_button = dict(attrs).get("type") in ("submit", "button", "reset")
        for name, value in attrs:
            is_told = name.startswith("data-") and OPEN in (value or "")
            if value and (name in SHOWN_ATTRIBUTES or is_told or (name == "value" and is_button)):
                self.attributes.append(value)

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in self.SILENT

    def handle_data(self, data: str) -> None:
        if not self._silent and data.strip():
            self.texts.append(" ".join(data.split()))


def unmarked(html: str) -> set[str]:
    """What a page says outside of marks, which may begin in one element and end in another."""
    said = Said(html)
    texts = [*_outside("\n".join(said.texts)).split("\n"), *map(_outside, said.attributes)]
    return {text for text in texts if re.search(r"[^\W\d_]", UNTRANSLATED.sub("", DATA.sub("", text)))}


def _outside(text: str) -> str:
    while (inner := re.sub(f"{OPEN}[^{OPEN}{CLOSE}]*{CLOSE}", "", text)) != text:
        text = inner
    return text


def fill() -> tuple[list[int], list[int]]:
    """Rows in which every text is a word that is known to be data."""
    return hostile.fill([f"word{number}" for number in range(3)])


def test_pages(root: Client, marked: None) -> None:
    hot, deferred = fill()
    insert_job("available", kind="word", queue="word7")
    urls = [
        *hostile.lists(),
        *hostile.details("hotjob", hot[0]),
        *hostile.details("deferredjob", deferred[0]),
    ]
    urls += [f"{reverse('admin:awa_hotjob_changelist')}?queue=word0&q=word", *filter_urls()]
    found: dict[str, set[str]] = {}
    for url in urls:
        response = root.get(url)
        if response["Content-Type"].startswith("text/html") and response.status_code == 200:
            found[url] = unmarked(response.content.decode())
        elif response["Content-Type"].startswith("application/json"):
            found[url] = unmarked("".join(response.json()["panels"].values()))
            charts = response.json()["charts"].values()
            assert all(chart["summary"].startswith(OPEN) for chart in charts)
    assert {url: texts for url, texts in found.items() if texts} == {}


def filter_urls() -> list[str]:
    return [f"{reverse(f'admin:awa_{name}_changelist')}?q=nothing" for name in PAGES if name.endswith("job")]


def test_questions_and_answers(root: Client, marked: None) -> None:
    url = reverse("admin:awa_job_changelist")
    found: dict[str, set[str]] = {}
    for name, action in JOB_ACTIONS.items():
        job_id = insert_job("running", kind="word", queue="word")
        data = {"action": name, ACTION_CHECKBOX_NAME: str(job_id), "index": "0"}
        asked = root.post(url, data, follow=True)
        found[name] = unmarked(asked.content.decode())
        across = root.post(f"{url}?queue=word", {**data, "select_across": "1"}, follow=True)
        found[f"{name}, all"] = unmarked(across.content.decode())
        if action.form is None:
            answered = root.post(url, {**data, "confirmed": "1"}, follow=True)
            found[f"{name}, answered"] = unmarked(answered.content.decode())
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_pauses_and_edits(root: Client, marked: None) -> None:
    found = {}
    for view, data in (("pause", {}), ("pause", {"lasts": "300"}), ("resume", {}), ("resume", {})):
        response = root.post(reverse(f"admin:awa_queuemeta_{view}"), {"queue": "word", **data}, follow=True)
        found[f"{view} {data}"] = unmarked(response.content.decode())
    operations.pause_queue("word", by="word")
    response = root.post(reverse("admin:awa_queuemeta_pause"), {"queue": "word", "lasts": "300"}, follow=True)
    found["paused longer"] = unmarked(response.content.decode())
    for state in ("running", "failed"):
        job_id = insert_job(state, kind="word", queue="word")
        response = root.get(reverse("admin:awa_job_arguments", args=[job_id]), follow=True)
        found[f"edit {state}"] = unmarked(response.content.decode())
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_names_of_pages_actions_and_filters_are_lazy() -> None:
    for page in PAGES.values():
        assert isinstance(page.opts.verbose_name, Promise), page
        assert isinstance(page.opts.verbose_name_plural, Promise), page
        for choice in page.list_filter:
            assert isinstance(getattr(choice, "title", None), Promise), choice
