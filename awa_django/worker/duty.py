"""Duty: a service that works only while its process holds the lease of the duty."""

from __future__ import annotations

from abc import abstractmethod

from awa_django.worker.database import Session
from awa_django.worker.leader import Leader
from awa_django.worker.service import Service


class Duty(Service):
    """A service that works only while this process holds the lease of its duty."""

    duty: str

    def __init__(self, session: Session, leader: Leader) -> None:
        super().__init__()
        self.session = session
        self.leader = leader

    def tick(self) -> float | None:
        if not self.is_leading:
            return min(self.interval.total_seconds(), 1.0)
        return self.perform()

    @abstractmethod
    def perform(self) -> float | None:
        """Do the duty once; seconds until the next time, None for the ordinary interval."""

    @property
    def is_leading(self) -> bool:
        """Whether to begin another statement of the duty."""
        return not self.is_stopping and self.leader.holds(self.duty)

    def close(self) -> None:
        self.session.close()
