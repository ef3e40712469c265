"""The catalogues have what the code says, all of it translated, with nothing lost on the way."""

from __future__ import annotations

import gettext
import io
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog

from scripts import messages

CATALOGUES = messages.catalogues()
PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[sd%]|\{\w*\}|</?\w+[^>]*>|--\w+|manage\.py|\*{8}")
by_language = pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parts[-3])


def forms(text: str | Iterable[str] | None) -> list[str]:
    return [text] if isinstance(text, str) else list(text or [])


def placeholders(text: str) -> Counter[str]:
    return Counter(PLACEHOLDER.findall(text))


def compiled(data: bytes) -> dict[object, str]:
    """The messages of a .mo, without its header, which names who compiled it."""
    catalog: dict[object, str] = dict(gettext.GNUTranslations(io.BytesIO(data))._catalog)  # type: ignore[attr-defined]
    catalog.pop("")
    return catalog


def test_there_are_translations() -> None:
    assert {path.parts[-3] for path in CATALOGUES} >= {"de", "es"}
    assert len(messages.messages()) > 300
    said = {message if isinstance(message, str) else message[0] for message in messages.messages()}
    # Of a template, of the script of a page, of a form, of an action, of an explanation.
    assert {"Why has it not run?", "Pause refreshing", "Priority", "Retry"} <= said
    assert "That one must commit or be ended." in said


@by_language
def test_a_catalogue_has_what_is_said_now_and_nothing_else(path: Path) -> None:
    written: Catalog = messages.read(path)
    wanted = set(messages.messages())
    has = {message.id if isinstance(message.id, str) else tuple(message.id) for message in written}
    assert has - {""} == wanted, "run `make messages`, and translate what is new"


@by_language
def test_all_is_translated_with_the_same_placeholders(path: Path) -> None:
    catalog: Catalog = messages.read(path)
    assert messages.untranslated(catalog) == []
    for message in catalog:
        if not message.id:
            continue
        assert "fuzzy" not in message.flags, message.id
        sources, translated = forms(message.id), forms(message.string)
        assert len(translated) == (1 if len(sources) == 1 else catalog.num_plurals), message.id
        for text in translated:
            # A singular may spell its number out: a plural form has what one of the two has.
            assert placeholders(text) in [placeholders(source) for source in sources], (message.id, text)
            assert text.endswith(".") == sources[0].endswith("."), (message.id, text)


@by_language
def test_what_is_installed_is_what_was_translated(path: Path) -> None:
    assert compiled(path.with_suffix(".mo").read_bytes()) == compiled(messages.as_mo(messages.read(path))), (
        "run `make messages`"
    )
