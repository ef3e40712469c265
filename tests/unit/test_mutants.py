"""`make mutants` runs for long and seldom: here, that each of its defects can still be put in."""

from __future__ import annotations

import pytest

from scripts.mutants import MUTANTS, Mutant
from tests.conftest import PROJECT_DIR


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_has_its_place_and_its_tests(mutant: Mutant) -> None:
    text = (PROJECT_DIR / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    for tests in mutant.tests:
        assert (PROJECT_DIR / tests).exists(), tests
