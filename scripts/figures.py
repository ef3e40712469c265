"""Figures of the house: how many files there are, how long they and their functions, and what stands twice.

    python scripts/figures.py [REVISION]

Lines are counted as they stand, with comments and blank ones; of a function without its docstring. Repeated
are the lines of every run of six that stands to the letter in another place of its row, too: blank lines,
comments, imports and lone punctuation do not count.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

ROWS = (
    ("awa_django", ".py"), ("awa_django", ".sql"), ("tests", ".py"), ("benchmarks", ".py"),
    ("example_project", ".py"), ("scripts", ".py"),
)  # fmt: skip
RUN = 6
LONGEST_NAMED = 5

Sized = tuple[int, str]


def main() -> None:
    house = read(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
    print("|  | files | lines | median | longest | functions | median | longest | repeated lines |")
    print("|---|---|---|---|---|---|---|---|---|")
    for room, ending in ROWS:
        texts = {
            path: text
            for path, text in house.items()
            if path.startswith(f"{room}/") and path.endswith(ending)
        }
        files = [(len(text.splitlines()), path) for path, text in texts.items()]
        found = list(functions(texts)) if ending == ".py" else []
        cells: list[float | str] = [len(files), sum(lines for lines, _ in files), *middle_and_most(files)]
        cells += [len(found), *middle_and_most(found)] if found else ["", "", ""]
        cells += [repeated(texts)]
        print(f"| `{room}/`, {ending} | " + " | ".join(map(shown, cells)) + " |")
        if room == "awa_django" and found:
            package = (("files", files), ("functions", found))
    for what, sized in package:
        print(f"\nThe longest {what} of the package:\n")
        for lines, name in sorted(sized, reverse=True)[:LONGEST_NAMED]:
            print(f"- {lines}: {name}")


def read(revision: str) -> dict[str, str]:
    """The text of each file of the rooms, as that commit has it."""
    rooms = sorted({room for room, _ in ROWS})
    archive = subprocess.check_output(["git", "archive", revision, "--", *rooms])
    house = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if member.isfile() and member.name.endswith((".py", ".sql")):
                content = tar.extractfile(member)
                assert content is not None
                house[member.name] = content.read().decode()
    return house


def functions(texts: Mapping[str, str]) -> Iterator[Sized]:
    """Every function and method, those inside of others too."""
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = length(node)
                if ast.get_docstring(node) is not None:
                    lines -= length(node.body[0])
                yield lines, f"{path}, {node.name}"


def length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def middle_and_most(sized: Iterable[Sized]) -> list[float]:
    lines = [lines for lines, _ in sized]
    return [median(lines), max(lines)]


def repeated(texts: Mapping[str, str]) -> int:
    """How many lines stand in a run that stands somewhere else, too."""
    places: defaultdict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path, text in texts.items():
        telling = [line for line in map(str.strip, text.splitlines()) if is_telling(line)]
        for start in range(len(telling) - RUN + 1):
            places[tuple(telling[start : start + RUN])].append((path, start))
    return len(
        {
            (path, start + offset)
            for found in places.values()
            if len(found) > 1
            for path, start in found
            for offset in range(RUN)
        }
    )


def is_telling(line: str) -> bool:
    return any(map(str.isalnum, line)) and not line.startswith(("#", "--", "import ", "from "))


def shown(cell: float | str) -> str:
    return cell if isinstance(cell, str) else f"{cell:,.0f}"


if __name__ == "__main__":
    main()
