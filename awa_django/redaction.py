"""What may be shown of a job's data: secrets masked, numbers exact, any depth, any size.

JSON is read as its text, word by word: no float is rounded, no integer is too long and no nesting
too deep, and nothing is decoded but the keys that decide what is masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from awa_django.conf import get_settings

MASK = "********"
# Where the metadata of a job name its secret arguments; and, as ``{"former": [...]}`` among the names, the
# values that they had before somebody changed them: the errors of old attempts may tell those.
MASKED_KEY = "awa:secret"
# Characters of one value on a page: more is no longer read, only slow.
LONGEST_SHOWN = 100_000
DEEPEST_INDENT = 30
# A secret is looked for in other texts from this length on: a shorter one is in every text.
SHORTEST_SOUGHT = 4
# From this length on it is found within a word, too.
SHORTEST_WITHIN = 8
MOST_SOUGHT = 200

# A string that the end of the text cuts off is one word too: what follows its quote may be a secret.
_WORD = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_URL_PASSWORD = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")


@dataclass(frozen=True, slots=True)
class Secrets:
    """What is masked of one job beside the keys of ``AWA["REDACT"]``."""

    names: frozenset[str] = frozenset()
    """Keys, as they are declared: ``@job(secret=...)``."""
    values: re.Pattern[str] | None = field(default=None, compare=False)
    """The values that the job's arguments have, or had, under any secret key, wherever else they stand."""


NO_SECRETS = Secrets()


def find_secrets(args: str, names: Iterable[str] = (), former: Iterable[str] = ()) -> Secrets:
    """The secrets of a job with these arguments (JSON text, which may be cut); ``names`` are declared.

    ``former`` are values that it had under a secret key before its arguments were changed: its errors may
    tell them still.
    """
    declared = frozenset(names)
    found = secret_values(args, declared).union(value for value in former if len(value) >= SHORTEST_SOUGHT)
    sought = sorted(found, key=len, reverse=True)
    if not sought:
        return Secrets(declared)
    return Secrets(declared, re.compile("|".join(map(_sought, sought[:MOST_SOUGHT]))))


def secret_values(args: str, names: Iterable[str] = ()) -> set[str]:
    """What stands under secret keys in arguments, as far as it is long enough to be looked for elsewhere."""
    found = _secret_values(args, frozenset(names))
    return {value for value in found if len(value) >= SHORTEST_SOUGHT}


def pretty_json(
    text: str, *, length: int | None = None, limit: int = LONGEST_SHOWN, secrets: Secrets = NO_SECRETS
) -> str:
    """JSON text indented, the values of secret keys masked, cut after ``limit`` characters.

    The text may itself be the beginning of a longer one, of ``length`` characters.
    """
    pieces: list[str] = []
    size = 0
    for piece in _pieces(text, secrets):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            break
    shown = "".join(pieces)
    if size > limit or (length is not None and length > len(text)):
        shown = f"{shown[:limit]}\n... cut here: {length or len(text):,} characters in all"
    return shown


def mask_text(text: str, secrets: Secrets = NO_SECRETS) -> str:
    """Free text with ``secret=value``, ``"secret": "value"``, passwords in URLs and known values masked."""
    if secrets.values is not None:
        text = secrets.values.sub(MASK, text)
    text = _URL_PASSWORD.sub(rf"\g<1>{MASK}", text)
    keys = [f"(?:{_any_of(parts)})[\\w.-]*"] if (parts := get_settings().redact) else []
    if secrets.names:
        keys.append(rf"(?<!\w)(?:{_any_of(secrets.names)})(?!\w)")
    if not keys:
        return text
    secret = re.compile(
        rf"""((?:{"|".join(keys)})["']?\s{{0,9}}[=:]\s{{0,9}})"""
        r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?:(?:Bearer|Basic|Token)\s+)?[^\s,;)}\]]+)""",
        re.IGNORECASE,
    )
    return secret.sub(rf"\g<1>{MASK}", text)


def _any_of(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(names)))


def _pieces(text: str, secrets: Secrets) -> Iterator[str]:
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
            secret = _is_secret(before, secret_parts, secrets.names)
            yield ": "
        else:
            if opened:
                yield _line(depth)
            yield _mask_word(word, secrets)
            depth += word in ("{", "[")
        opened = word in ("{", "[")
        before = word


def _skip_rest(word: str, words: Iterator[str]) -> list[str]:
    """Consume the rest of the value that begins with ``word``; the words of the whole value."""
    value = [word]
    depth = int(word in ("{", "["))
    while depth > 0:
        word = next(words, "")
        if not word:
            break
        value.append(word)
        depth += (word in ("{", "[")) - (word in ("}", "]"))
    return value


def _is_secret(key: str, secret_parts: tuple[str, ...], names: frozenset[str]) -> bool:
    name = _plain(key)
    return name in names or any(part in name.lower() for part in secret_parts)


def _secret_values(text: str, names: frozenset[str]) -> Iterator[str]:
    """The strings and numbers under secret keys."""
    secret_parts = tuple(part.lower() for part in get_settings().redact)
    words = (match[0] for match in _WORD.finditer(text))
    before = ""
    for word in words:
        if word == ":" and _is_secret(before, secret_parts, names):
            value = _skip_rest(next(words, ""), words)
            for each, following in zip(value, [*value[1:], ""], strict=True):
                if (each.startswith('"') or each[:1].isdigit() or each[:1] == "-") and following != ":":
                    yield _plain(each)
        before = word


def _plain(word: str) -> str:
    """A word of JSON as people know it: a string without its quotes."""
    if not word.startswith('"'):
        return word
    try:
        return str(json.loads(word))
    except ValueError:  # cut
        return word[1:]


def _sought(value: str) -> str:
    """A pattern for the value, as it stands or as JSON writes it; a short one only as a word."""
    forms = {value, json.dumps(value, ensure_ascii=False)[1:-1]}
    pattern = "|".join(map(re.escape, sorted(forms)))
    return f"(?:{pattern})" if len(value) >= SHORTEST_WITHIN else rf"(?<!\w)(?:{pattern})(?!\w)"


def _mask_word(word: str, secrets: Secrets) -> str:
    """A string without what is secret in it; a number that is a known value becomes a string."""
    if not word.startswith('"'):
        known = secrets.values is not None and word not in ("{", "[") and secrets.values.fullmatch(word)
        return f'"{MASK}"' if known else word
    if secrets.values is not None:
        word = f'"{secrets.values.sub(MASK, word[1:])}'
    if "=" in word or ":" in word:  # what a secret in a text stands behind
        text = _plain(word)
        if (masked := mask_text(text, secrets)) != text:
            return json.dumps(masked, ensure_ascii=False)
    return word


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, DEEPEST_INDENT)
