"""FireKey: the unique key of a schedule's fires, as its row holds it for whoever leads."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from awa_django.codec import JSON
from awa_django.errors import ConfigurationError
from awa_django.states import JobState
from awa_django.unique import Unique, bucket_of, digest, key_material

FIRE_KEY = "awa:unique"
"""In the metadata of a schedule's row. Its jobs do not have it."""
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class FireKey:
    """What the key of each fire is made of: a schedule's arguments are constant, so all but the period.

    A leader need not know the kind, nor call a key function. Without a period ``base`` is the key itself.
    """

    mask: str
    base: bytes
    period: timedelta | None = None

    @classmethod
    def of(cls, unique: Unique, kind: str, *, queue: str, args: dict[str, JSON]) -> FireKey:
        """Raises: InvalidJob when the key function fails, or answers what cannot be part of a key."""
        material = key_material(kind, queue=queue if unique.queue else None, args=unique.counted(kind, args))
        if unique.period is None:
            return cls(unique.mask, digest(material))
        return cls(unique.mask, material, unique.period)

    @classmethod
    def from_json(cls, text: str) -> FireKey:
        """Raises: ConfigurationError for what ``to_json`` has not written."""
        try:
            read = json.loads(text)
            mask, base = read["states"], base64.b64decode(read["base"], validate=True)
            period = read.get("period_us")
            if len(mask) != len(JobState) or set(mask) > {"0", "1"}:
                raise ValueError(mask)
            if period is not None:
                period = int(period) * _MICROSECOND
                if period <= timedelta(0):
                    raise ValueError(period)
            return cls(mask, base, period)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as exc:
            raise ConfigurationError(f"its metadata hold a wrong {FIRE_KEY}: {exc!r}") from exc

    def to_json(self) -> dict[str, JSON]:
        written: dict[str, JSON] = {"states": self.mask, "base": base64.b64encode(self.base).decode()}
        if self.period is not None:
            written["period_us"] = self.period // _MICROSECOND
        return written

    def at(self, fire_at: datetime) -> bytes:
        """The key of the fire of this instant: that of a job enqueued for it with ``run_at``."""
        if self.period is None:
            return self.base
        return digest(self.base, bucket_of(fire_at, self.period))
