"""What may be shown of a job's data: secrets masked, numbers exact, any depth, any size.

JSON is read as its text, word by word: no float is rounded, no integer is too long and no nesting
too deep, and nothing is decoded but the keys that decide what is masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from awa_django.conf import get_settings

MASK = "********"
# Characters of one value on a page: more is no longer read, only slow.
LONGEST_SHOWN = 100_000
DEEPEST_INDENT = 30

# A string that the end of the text cuts off is one word too: what follows its quote may be a secret.
_WORD = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_URL_PASSWORD = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")


def pretty_json(text: str, *, length: int | None = None, limit: int = LONGEST_SHOWN) -> str:
    """JSON text indented, the values of secret keys masked, cut after ``limit`` characters.

    The text may itself be the beginning of a longer one, of ``length`` characters.
    """
    pieces: list[str] = []
    size = 0
    for piece in _pieces(text):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            break
    shown = "".join(pieces)
    if size > limit or (length is not None and length > len(text)):
        shown = f"{shown[:limit]}\n... cut here: {length or len(text):,} characters in all"
    return shown


def mask_text(text: str) -> str:
    """Free text with ``secret=value``, ``"secret": "value"`` and passwords in URLs masked."""
    text = _URL_PASSWORD.sub(rf"\g<1>{MASK}", text)
    parts = get_settings().redact
    if not parts:
        return text
    names = "|".join(map(re.escape, parts))
    secret = re.compile(
        rf"""((?:{names})[\w.-]*["']?\s{{0,9}}[=:]\s{{0,9}})"""
        r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?:(?:Bearer|Basic|Token)\s+)?[^\s,;)}\]]+)""",
        re.IGNORECASE,
    )
    return secret.sub(rf"\g<1>{MASK}", text)


def _pieces(text: str) -> Iterator[str]:
    """The pretty form in pieces, of well-formed JSON as PostgreSQL prints it."""
    secret_parts = tuple(part.lower() for part in get_settings().redact)
    words = (match[0] for match in _WORD.finditer(text))
    depth = 0
    opened = False  # the word before opened an object or an array
    secret = False  # the value that comes is a secret
    before = ""
    for word in words:
        if secret:
            secret = False
            _skip_rest(word, words)
            word = MASK  # noqa: PLW2901 - what it opened is closed
            yield f'"{MASK}"'
        elif word in ("}", "]"):
            depth -= 1
            yield word if opened else _line(depth) + word
        elif word == ",":
            yield word + _line(depth)
        elif word == ":":
            secret = _is_secret(before, secret_parts)
            yield ": "
        else:
            if opened:
                yield _line(depth)
            yield word
            depth += word in ("{", "[")
        opened = word in ("{", "[")
        before = word


def _skip_rest(word: str, words: Iterator[str]) -> None:
    """Consume the rest of the value that begins with ``word``."""
    depth = int(word in ("{", "["))
    while depth > 0:
        word = next(words, "")
        if not word:
            return
        depth += (word in ("{", "[")) - (word in ("}", "]"))


def _is_secret(key: str, secret_parts: tuple[str, ...]) -> bool:
    try:
        name = str(json.loads(key)).lower()
    except ValueError:
        name = key.lower()
    return any(part in name for part in secret_parts)


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, DEEPEST_INDENT)
