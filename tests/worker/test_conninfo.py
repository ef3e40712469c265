"""AWA["LISTEN_URL"]: what it says of its connection holds; the worker's defaults, where it says nothing."""

from __future__ import annotations

import pytest
from psycopg.conninfo import make_conninfo

from awa_django.worker.database import connect


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "given", [{}, {"keepalives_idle": "77", "connect_timeout": "3"}], ids=["not", "said"]
)
def test_url_has_the_last_word(database_url: str, given: dict[str, str]) -> None:
    connection = connect("awa-test-conninfo", conninfo=make_conninfo(database_url, **given))
    with connection:
        has = connection.info.get_parameters()
    expected = {"keepalives_idle": "10", "connect_timeout": "10", **given}
    assert {name: has[name] for name in expected} == expected
    assert has["application_name"] == "awa-test-conninfo"
    assert has["target_session_attrs"] == "read-write"
