"""A plugin for pytest (with pytest-django): the fixture ``awa_jobs``.

A module beside the package, as pytest imports it in every project of the environment: it imports nothing
of Django or of the queue until a test asks for the fixture.
"""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.fixture
def awa_jobs(db: None) -> ModuleType:  # noqa: ARG001  (the database comes with it)
    """``awa_django.testing`` on the test's database: ``awa_jobs.drain()``, ``awa_jobs.assert_enqueued(...)``.

    In a test marked ``django_db(transaction=True)`` the jobs are committed, and gone after it.
    """
    from awa_django import testing

    return testing
