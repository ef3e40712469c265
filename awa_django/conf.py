from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AwaSettings:
    database: str = "default"


def get_settings() -> AwaSettings:
    return AwaSettings()
