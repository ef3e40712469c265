from __future__ import annotations

from pathlib import Path

from tests.fault_report import BEGIN, END, Injected, write


def injected(what: str, seen: str, outcome: str = "held") -> Injected:
    row = Injected(what, "tests/test_it.py::test_it")
    row.add(seen, outcome)
    return row


def report(tmp_path: Path) -> Path:
    target = tmp_path / "report.md"
    target.write_text(f"# Report\n{BEGIN}\n{END}\nThe end.\n", encoding="utf-8")
    return target


def table(target: Path) -> list[str]:
    text = target.read_text(encoding="utf-8")
    assert text.startswith("# Report\n")
    assert text.endswith("The end.\n")
    return text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]


def test_rows_stand_in_the_order_of_the_ids(tmp_path: Path) -> None:
    target = report(tmp_path)
    write(
        target, {"U1": [injected("c", "z")], "F10": [injected("b | pipe", "y")], "F2": [injected("a", "x")]}
    )
    assert table(target) == [
        "| F2 | a | x | held |",
        "| F10 | b \\| pipe | y | held |",
        "| U1 | c | z | held |",
    ]


def test_failure_is_told(tmp_path: Path) -> None:
    target = report(tmp_path)
    write(target, {"F2": [injected("a", "x", "FAILED")]})
    assert "FAILED" in table(target)[0]


def test_merge_keeps_what_did_not_run_and_replaces_what_did(tmp_path: Path) -> None:
    target = report(tmp_path)
    write(target, {"F2": [injected("a", "old"), injected("b \\| c", "kept")]})
    write(target, {"F2": [injected("a", "new")]}, merge=True)
    assert table(target)[0].split(" | ")[2] == "new"
    assert len(table(target)) == 2
    write(target, {"F2": [injected("a", "only")]})
    assert table(target) == ["| F2 | a | only | held |"]
