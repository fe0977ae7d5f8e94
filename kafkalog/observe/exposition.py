"""Exposition: metric families as text, in Prometheus' format 0.0.4 and in OpenMetrics 1.0.

Owns the text of headers, labels and numbers, equal to prometheus_client's (tests), which writes all
families but plain gauges and counters. Pure; any thread.

``RowRenderer`` writes families that have one sample for each row, such as a partition. The library
holds the event loop for 210 ms for 50,000 samples. Here the lines of a row are cached with the
values they show: a scrape compares the values of a row and formats only those that changed, in
slices of ``SLICE`` rows between which the loop runs. Rows that a complete scrape no longer finds
are dropped, so that a deleted topic loses its series at once. Memory: the lines, about 110 bytes
each. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import enum
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

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


R = TypeVar("R")

SLICE = 100  # rows between two turns of the loop: about a millisecond when all have changed


class RowFamily(NamedTuple):
    """One family: its name as its samples are called, and the field of a row that is its value.

    A value of None makes no sample.
    """

    name: str
    field: str
    text: str
    kind: str = "gauge"


class _Known(NamedTuple):
    """What the last scrape made of a row."""

    values: tuple[float | None, ...]
    labels: str
    lines: tuple[str, ...]  # one a family, empty without a value


class RowRenderer(Generic[R]):
    """See the module. ``labels`` are the fields that identify a row; None is not shown."""

    def __init__(self, families: Sequence[RowFamily], *labels: str) -> None:
        assert len(families) > 1, "attrgetter gives a tuple for two and more"
        self.families = tuple(families)
        self._labels = labels
        self._key: Callable[[R], Hashable] = attrgetter(*labels)
        self._values: Callable[[R], object] = attrgetter(*(each.field for each in families))
        self._known: dict[Hashable, _Known] = {}

    async def render(
        self,
        rows: Iterable[R],
        exposition: Exposition,
        shows_family: Callable[[str], bool] = lambda _: True,
        *,
        is_whole: bool = True,
    ) -> str:
        """Each family's header and the lines of all rows; without families "".

        ``is_whole``: these are all rows, so that others are dropped.
        """
        columns = {
            at: [header_text(each.name, each.kind, each.text, exposition)]
            for at, each in enumerate(self.families)
            if shows_family(each.name)
        }
        kept: dict[Hashable, _Known] = {}
        slice_lines: list[tuple[str, ...]] = []
        for row in rows:
            key = self._key(row)
            known = kept[key] = self._look(key, row)
            slice_lines.append(known.lines)
            if len(slice_lines) == SLICE:
                _add_slice(columns, slice_lines)
                slice_lines.clear()
                await asyncio.sleep(0)
        _add_slice(columns, slice_lines)
        if is_whole:
            self._known = kept
        return "".join("".join(column) for column in columns.values())

    def _look(self, key: Hashable, row: R) -> _Known:
        """The row's lines: those of the last scrape where nothing has changed."""
        values = cast("tuple[float | None, ...]", self._values(row))
        known = self._known.get(key)
        if known is not None and known.values == values:
            return known
        if known is None:
            labels = {name: getattr(row, name) for name in self._labels}
            names = [name for name, value in labels.items() if value is not None]
            text = labels_text(names, [str(labels[name]) for name in names])
            known = _Known((None,) * len(values), text, ("",) * len(values))
        lines = list(known.lines)
        for at, (value, before) in enumerate(zip(values, known.values, strict=True)):
            if value is None:
                lines[at] = ""
            elif value != before:
                lines[at] = f"{self.families[at].name}{known.labels} {number_text(value)}\n"
        return known._replace(values=values, lines=tuple(lines))


def _add_slice(columns: dict[int, list[str]], slice_lines: Sequence[tuple[str, ...]]) -> None:
    """The lines of some rows, turned round: one piece more for each family that is shown."""
    by_family = list(zip(*slice_lines, strict=True))
    if by_family:
        for at, column in columns.items():
            column.append("".join(by_family[at]))
