"""What README and docs show is run here, so that it stays true."""

from __future__ import annotations

import re
import unittest
from typing import Any

import pytest
from django.db import connection

from awa_django import conf, registry, testing
from awa_django.models import Job
from tests.conftest import PROJECT_DIR

BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
DJANGO_OPTIONS = {
    "--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback",
    "--no-color", "--force-color", "--skip-checks",
}  # fmt: skip


def blocks(page: str, language: str) -> list[str]:
    text = (PROJECT_DIR / page).read_text(encoding="utf-8")
    return [
        re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
        for indent, name, block in BLOCK.findall(text)
        if name == language
    ]


@pytest.fixture
def snippets(registered: None) -> dict[str, Any]:
    """The namespace in which the README is run, as its module would be."""
    return {"__name__": "readme.tasks"}


@pytest.mark.django_db
def test_the_readme_runs(snippets: dict[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('awa.jobs_id_seq', 1000)")  # away from the ids that the README names
    ran = 0
    for block in blocks("README.md", "python"):
        if "INSTALLED_APPS" in block or "order.save()" in block:
            continue
        exec(compile(block, "README.md", "exec", dont_inherit=True), snippets)
        ran += 1
    assert ran == 7
    assert snippets["ship"].handler.kind == "shop.ship"
    assert {job.name for job in registry.periodic_jobs()} >= {"readme.morning_report"}
    assert snippets["done"].created
    (shipped,) = Job.objects.filter(kind="shop.ship")  # it is unique: the later ones were duplicates
    assert (shipped.pk, shipped.state) == (snippets["done"].id, "completed")
    assert shipped.result == "parcel-1"
    assert Job.objects.filter(kind="readme.send_receipt").count() == 3
    assert (
        snippets["ship"].handler.decode(snippets["ship"].handler.encode(snippets["arguments"]))
        == snippets["arguments"]
    )


@pytest.mark.django_db
def test_the_setting_of_the_readme_is_accepted(settings: Any, snippets: dict[str, Any]) -> None:
    (block,) = [block for block in blocks("README.md", "python") if block.startswith("AWA =")]
    exec(f"from datetime import timedelta\n{block}", snippets)
    settings.AWA = snippets["AWA"]
    assert conf.get_settings().retention.of("bulk", "completed").total_seconds() == 0


@pytest.mark.django_db
def test_the_models_of_the_sql_page_work(snippets: dict[str, Any]) -> None:
    (block,) = blocks("docs/raw-sql.md", "python")
    exec(block, snippets)
    assert Job.objects.get().state == "available"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_the_tests_of_the_testing_page_pass(snippets: dict[str, Any]) -> None:
    for block in blocks("docs/testing.md", "python"):
        exec(block, snippets)
    result = unittest.TestResult()
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    unittest.TestSuite(load(snippets[name]) for name in ("OrderTest", "MailTest", "InlineTest")).run(result)
    assert result.testsRun == 5
    assert not result.errors + result.failures, result.errors + result.failures


@pytest.mark.django_db
def test_the_fixture_of_the_testing_page_works(snippets: dict[str, Any]) -> None:
    for block in blocks("docs/testing.md", "python"):
        exec(block, snippets)
    snippets["test_an_order_sends_a_receipt"](testing)


def test_every_function_for_tests_is_documented() -> None:
    page = (PROJECT_DIR / "docs/testing.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `([a-z_]+)\(", page, re.MULTILINE))
    assert documented == set(testing.__all__) - {"Run"}
