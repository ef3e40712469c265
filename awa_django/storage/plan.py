"""Plans that do not depend on statistics: docs/design/0005."""

from __future__ import annotations

from awa_django.storage._sql import Connection, fetch


def plan_in_order(connection: Connection) -> None:
    """For the rest of the transaction: no statistics shall lead to another index, or to a sort."""
    fetch(connection, "plan_in_order")
