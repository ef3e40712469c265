"""Check that the relative links of README, changelog and docs lead to files and headings that exist.

As a code host resolves them; of the pages in the site Sphinx says the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

FENCE = re.compile(r"^ {0,3}(```|~~~).*?^ {0,3}\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
# [text](target), ![image](target "title"), and the reference form [name]: target
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'(][^)]*)?\)|^ {0,3}\[[^\]]+\]:\s+<?([^\s>]+)>?", re.MULTILINE
)
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
OUTSIDE = re.compile(r"^[a-z][a-z0-9+.-]*:|^//", re.IGNORECASE)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, made as the code-hosting sites make them."""
    found: set[str] = set()
    for title in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", title).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        anchor, count = slug, 0
        while anchor in found:
            count += 1
            anchor = f"{slug}-{count}"
        found.add(anchor)
    return found


def links(text: str) -> Iterator[str]:
    """The targets of the links of a page, but for those shown as code."""
    for inline, reference in LINK.findall(CODE.sub("", FENCE.sub("", text))):
        yield inline or reference


def broken(page: Path, root: Path) -> Iterator[str]:
    """What is wrong with each relative link of the page."""
    for target in links(page.read_text(encoding="utf-8")):
        if OUTSIDE.match(target):
            continue
        location, _, anchor = unquote(target).partition("#")
        path = page if not location else root / location[1:] if location[0] == "/" else page.parent / location
        if not path.exists():
            yield f"{target}: no such file"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
            yield f"{target}: no such heading"


def main(root: Path) -> int:
    pages = [page for page in (root / "README.md", root / "CHANGELOG.md") if page.exists()]
    pages += sorted(page for page in (root / "docs").rglob("*.md") if "_build" not in page.parts)
    problems = [f"{page.relative_to(root)}: {problem}" for page in pages for problem in broken(page, root)]
    print("\n".join(problems) or f"{len(pages)} pages, no broken link")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
