"""What those who run handlers share: where outcomes go, and what to do when the running itself breaks."""

from __future__ import annotations

import logging
import os
from typing import NoReturn, Protocol

from awa_django.codec import JSON
from awa_django.logs import get_logger
from awa_django.storage.rows import Outcome
from awa_django.worker.holdings import HeldJob

logger = get_logger(__name__)

# sysexits.h: an internal software error.
EXIT_BROKEN = 70


class Sink(Protocol):
    """Where outcomes go: the completer."""

    def put(self, held: HeldJob, outcome: Outcome | None) -> None: ...
    def report(self, held: HeldJob, progress: dict[str, JSON]) -> None: ...


def give_up(exc: BaseException) -> NoReturn:
    """Not the handler but the worker's own code round it broke: what ran would hang in its slot for ever.

    A dead process is rescued at once, and a new one takes its place.
    """
    logger.critical("running jobs broke: this worker process ends", exc_info=exc)
    logging.shutdown()
    os._exit(EXIT_BROKEN)
