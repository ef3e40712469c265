"""What the figures of the house count."""

from __future__ import annotations

from scripts.figures import RUN, functions, repeated

RUN_OF_LINES = "".join(f"line_{number} = {number}\n" for number in range(RUN))


def test_functions_are_counted_without_their_docstrings() -> None:
    text = 'class A:\n    def one(self):\n        """It.\n\n        More.\n        """\n        return 1\n'
    text += "\n\nasync def two():\n    def inner():\n        pass\n    return inner\n"
    assert sorted(functions({"a.py": text})) == [(2, "a.py, inner"), (2, "a.py, one"), (4, "a.py, two")]


def test_lines_that_stand_twice_are_counted_at_each_place() -> None:
    again = "import os\n# why\n\n" + RUN_OF_LINES.replace("line_3", "    line_3") + "another = 1\n"
    assert repeated({"a.py": RUN_OF_LINES, "b.py": again}) == 2 * RUN
    assert repeated({"a.py": RUN_OF_LINES + RUN_OF_LINES}) == 2 * RUN
    assert repeated({"a.py": RUN_OF_LINES}) == 0


def test_a_shorter_run_is_not_counted() -> None:
    shorter = RUN_OF_LINES.split("\n", 1)[1]
    assert repeated({"a.py": RUN_OF_LINES, "b.py": shorter}) == 0
