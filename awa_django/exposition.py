"""Exposition: metrics as Prometheus' text format. No database here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[str, Labels, float]
"""What stands behind the name of the family, the labels and the value."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[Sample]

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.type}"
        for suffix, labels, value in self.samples:
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"{self.name}{suffix}{{{pairs}}} {value}" if pairs else f"{self.name}{suffix} {value}"


def gauge(name: str, text: str, value: float) -> Family:
    """A gauge that has no labels."""
    return Family(name, "gauge", text, [("", {}, value)])


def as_text(families: Iterable[Family]) -> str:
    """The families in their order, as a scraper reads them."""
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
