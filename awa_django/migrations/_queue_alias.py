"""Which aliases lead to the queue's database: two may lead to one, as one of them goes through a pooler."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.backends.base.creation import TEST_DATABASE_PREFIX

from awa_django.conf import get_settings


def leads_to_queue(connection: Any) -> bool:
    """Whether the alias is ``AWA["DATABASE"]``, or its settings lead to the same database on the same server.

    Django writes down in the database itself what is applied there: what an alias left out, no other would
    make up for. In tests, where Django makes a database by the first of its aliases, these alone are seen.
    """
    queue_alias = get_settings().database
    if connection.vendor != "postgresql" or queue_alias not in connections.settings:
        return False
    if connection.alias == queue_alias:
        return True
    queue = connections[queue_alias]
    own, its = connection.settings_dict, queue.settings_dict
    is_test = own["NAME"] == own["TEST"]["NAME"] or str(own["NAME"]).startswith(TEST_DATABASE_PREFIX)
    if is_test and its["TEST"]["MIRROR"] == connection.alias:
        return True
    if queue.vendor != "postgresql" or _server(own) != _server(its):
        return False
    # While tests are prepared, only this alias has its test database already.
    return own["NAME"] in {its["NAME"], queue.creation.test_db_signature()[3] if is_test else None}


def _server(settings_dict: dict[str, Any]) -> tuple[object, ...]:
    return settings_dict["HOST"], settings_dict["PORT"], settings_dict["OPTIONS"].get("service")
