"""Keep the catalogues of translations current: what the code and the templates say, and what is compiled.

What `manage.py makemessages` and `compilemessages` do, without the programs of GNU gettext: new messages
are added empty, those that are gone are dropped, and nothing is guessed. Fill in the .po, then run it again.
"""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "awa_django"
LOCALE = PACKAGE / "locale"
# How the code calls Django's functions -> how many of the arguments are messages.
FUNCTIONS = {
    "_": 1, "_l": 1, "_n": 1, "gettext": 1, "gettext_lazy": 1, "gettext_noop": 1, "ngettext": 2,
    "ngettext_lazy": 2,
}  # fmt: skip
_TEXT = r"u?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_IN_TEMPLATE = re.compile(rf"\b(_|n?gettext)\({_TEXT}(?:, {_TEXT})?", re.DOTALL)

# A message, or a message with its plural: what babel keys a catalogue by.
Message = str | tuple[str, str]


@dataclass(slots=True)
class Found:
    """Where a message is said."""

    places: list[str] = field(default_factory=list)


def main() -> None:
    """Write each .po anew from the sources, and each .mo from its .po."""
    missing = 0
    for path in catalogues():
        catalog = update(path)
        path.write_bytes(as_po(catalog))
        path.with_suffix(".mo").write_bytes(as_mo(catalog))
        left = untranslated(catalog)
        missing += len(left)
        print(f"{path.relative_to(ROOT)}: {len(catalog)} messages, {len(left)} to be translated")
    sys.exit(1 if missing else 0)


def catalogues() -> list[Path]:
    return sorted(LOCALE.glob("*/LC_MESSAGES/django.po"))


def read(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file, locale=path.parts[-3], domain="django")


def update(path: Path) -> Catalog:
    """The catalogue as it is to be: the messages of the sources, with the translations that there are."""
    known = read(path)
    catalog = Catalog(
        locale=known.locale,
        domain="django",
        project="awa-django",
        version="0.1",
        msgid_bugs_address="see CONTRIBUTING.md",
        charset="utf-8",
        header_comment=known.header_comment,
        creation_date=known.creation_date,
        revision_date=known.revision_date,
        last_translator=known.last_translator,
        language_team=known.language_team,
        fuzzy=False,
    )
    for message, found in messages().items():
        before = known.get(message)
        # A message that has got a plural, or lost it, is another one.
        catalog.add(
            message,
            before.string if before is not None and before.id == message else None,
            locations=[(place, 1) for place in sorted(set(found.places))],
        )
    return catalog


def messages() -> dict[Message, Found]:
    """All that the package says to people by gettext, in the order of files."""
    found: dict[Message, Found] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        _add(found, path, _in_code(path.read_text(encoding="utf-8")))
    for path in sorted((PACKAGE / "templates").rglob("*.html")):
        _add(found, path, _in_template(path.read_text(encoding="utf-8")))
    return found


def untranslated(catalog: Catalog) -> list[object]:
    """The messages without a translation, or without one of its plural forms."""
    return [message.id for message in catalog if message.id and not _is_translated(message.string)]


def as_po(catalog: Catalog) -> bytes:
    """Without numbers of lines: those change with each commit."""
    file = io.BytesIO()
    write_po(file, catalog, width=100, sort_by_file=True, include_lineno=False)
    return file.getvalue()


def as_mo(catalog: Catalog) -> bytes:
    file = io.BytesIO()
    write_mo(file, catalog)
    return file.getvalue()


def _add(found: dict[Message, Found], path: Path, said: Iterator[Message]) -> None:
    place = path.relative_to(ROOT).as_posix()
    for message in said:
        found.setdefault(message, Found()).places.append(place)


def _in_code(source: str) -> Iterator[Message]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            wanted = [text for text in texts if isinstance(text, str)][: FUNCTIONS[node.func.id]]
            if len(wanted) == FUNCTIONS[node.func.id]:
                yield wanted[0] if len(wanted) == 1 else (wanted[0], wanted[1])


def _in_template(source: str) -> Iterator[Message]:
    for function, one, many in _IN_TEMPLATE.findall(templatize(source)):
        text = ast.literal_eval(one)
        yield (text, ast.literal_eval(many)) if function == "ngettext" else text


def _is_translated(string: str | Sequence[str] | None) -> bool:
    return bool(string) if isinstance(string, str) else all(string or [""])


if __name__ == "__main__":
    main()
