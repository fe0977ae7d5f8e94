"""Exposition: metric families as text, in Prometheus' format 0.0.4 and in OpenMetrics 1.0.

Owns the text of headers, labels and numbers; equal to what prometheus_client writes (tests), which
writes whatever is no plain gauge or counter itself. Pure; any thread.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.metrics_core import Metric

_PLAIN_BELOW = 1_000_000  # from here on the format writes an exponent


class Exposition(enum.Enum):
    """The formats, by their content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    @property
    def end(self) -> str:
        """What closes a page."""
        return "# EOF\n" if self is Exposition.OPENMETRICS else ""


class _One(Collector):
    """A collector of one family."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        yield self._metric


def stock_text(metric: Metric, exposition: Exposition) -> str:
    """A family as the library writes it; about 5 us a sample."""
    if exposition is Exposition.TEXT:
        return generate_latest(_One(metric)).decode()
    page: bytes = generate_openmetrics(_One(metric))  # type: ignore[no-untyped-call]  # untyped there
    return page.decode().removesuffix(exposition.end)


def header_text(name: str, kind: str, text: str, exposition: Exposition) -> str:
    """HELP and TYPE of a family; ``name`` as its samples are called, ``text`` without escapes."""
    if exposition is Exposition.OPENMETRICS:
        name = name.removesuffix("_total") if kind == "counter" else name
    elif kind == "unknown":
        kind = "untyped"
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def labels_text(names: Sequence[str], values: Sequence[str]) -> str:
    """``{a="x",b="y"}`` sorted by name; empty without labels."""
    if not names:
        return ""
    pairs = sorted(zip(names, values, strict=True))
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def number_text(value: float) -> str:
    """As Go prints a float."""
    if type(value) is int and 0 <= value < _PLAIN_BELOW:
        return f"{value}.0"
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # untyped there
    return text
