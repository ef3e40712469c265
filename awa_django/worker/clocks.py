"""ClockComparison: says when this machine's clock is wrong. Nothing here goes by it but the times in logs."""

from __future__ import annotations

import time

from awa_django.logs import get_logger
from awa_django.storage.insert import database_now
from awa_django.worker.database import PsycopgConnection

logger = get_logger(__name__)

# Seconds: below this it is how clocks are, and a slow answer.
WORTH_SAYING = 1.0


class ClockComparison:
    """Logs the difference when it begins, when it changes, and when it ends."""

    def __init__(self) -> None:
        self._said = 0.0

    def look(self, connection: PsycopgConnection) -> None:
        """Compare now; one statement."""
        before = time.time()
        there = database_now(connection).timestamp()
        after = time.time()
        # Positive: this machine is ahead. While the answer was on its way no difference is certain.
        ahead = before - there if there < before else min(after - there, 0.0)
        if abs(ahead) < WORTH_SAYING:
            ahead = 0.0
        if abs(ahead - self._said) < WORTH_SAYING:
            return
        self._said = ahead
        if ahead:
            logger.warning(
                "the clock of this machine is %.0f s %s the database's: "
                "jobs go by the database's, logs by this one",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
            )
        else:
            logger.info("the clock of this machine agrees with the database's again")
