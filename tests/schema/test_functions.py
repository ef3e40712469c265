from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

pytestmark = pytest.mark.django_db


def rows(query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def test_every_function_has_a_pinned_search_path_and_the_rights_of_its_caller() -> None:
    functions = rows(
        "SELECT proname, prosecdef, coalesce(array_to_string(proconfig, ' '), '') "
        "FROM pg_proc WHERE pronamespace = 'awa'::regnamespace"
    )
    assert len(functions) >= 9
    for name, is_security_definer, config in functions:
        assert not is_security_definer, name
        assert "search_path=pg_catalog, pg_temp" in str(config), name


def test_no_function_builds_its_sql() -> None:
    assert (
        rows(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'awa'::regnamespace "
            r"AND prosrc ~* '\mEXECUTE\M'"
        )
        == []
    )


def test_trigger_functions_are_not_for_the_public() -> None:
    assert (
        rows(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'awa'::regnamespace "
            "AND prorettype = 'trigger'::regtype AND has_function_privilege('public', oid, 'EXECUTE')"
        )
        == []
    )


def test_view_functions_neither_scan_nor_compile() -> None:
    configs = rows(
        "SELECT proconfig FROM pg_proc "
        "WHERE pronamespace = 'awa'::regnamespace AND proname LIKE '%job_through_view'"
    )
    assert len(configs) == 3
    for (config,) in configs:
        assert {"enable_seqscan=off", "jit=off"} <= set(config)
