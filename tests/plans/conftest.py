"""Plans, pages and WAL are those of tables as new, not of what the tests before have left in their files."""

from __future__ import annotations

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.conftest import empty_queue_tables


@pytest.fixture(scope="module", autouse=True)
def new_tables(database_url: str, django_db_blocker: DjangoDbBlocker) -> None:
    """Once a module: what is filled for its tests stands in a transaction that they share."""
    with django_db_blocker.unblock():
        empty_queue_tables(database_url)
