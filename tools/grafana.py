"""Grafana's JSON for rows of panels, which are placed from left to right.

Owns the form of a dashboard: schema version, ids, positions on the grid, the data source as a
variable. ``tools/dashboards.py`` owns the contents. Pure: equal dashboards give equal JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SCHEMA_VERSION = 39
_GRID_WIDTH = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_GREEN, _ORANGE, _RED = "green", "orange", "red"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression. ``legend`` is Grafana's template; empty names all labels."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of a ratio or count for a warning and for a bad state.

    ``bad`` below ``warn`` means that small values are the bad ones; equal: nothing in between.
    """

    warn: float
    bad: float

    def steps(self) -> list[dict[str, Any]]:
        """Grafana's thresholds: the colour from each value upwards."""
        if self.bad < self.warn:
            steps = [(None, _RED), (self.bad, _ORANGE), (self.warn, _GREEN)]
        elif self.bad == self.warn:
            steps = [(None, _GREEN), (self.bad, _RED)]
        else:
            steps = [(None, _GREEN), (self.warn, _ORANGE), (self.bad, _RED)]
        return [{"color": colour, "value": value} for value, colour in steps]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``kind`` is Grafana's type; ``unit`` one of its units; sizes in grid cells.

    ``options`` go to the panel, ``custom`` to its fields; tables show the newest values.
    """

    title: str
    kind: str
    queries: Sequence[Query]
    unit: str = "short"
    width: int = 8
    height: int = 8
    description: str = ""
    limits: Limits | None = None
    custom: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a title; ``repeat`` is a variable: the row is repeated for each value."""

    title: str
    panels: Sequence[Panel]
    repeat: str | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A selection at the top of the page: the values of a label."""

    name: str
    series: str


@dataclass(frozen=True, slots=True)
class Annotation:
    """Marks on the time axis. ``is_time``: the value is a time in milliseconds."""

    name: str
    expr: str
    title: str
    colour: str
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard; ``uid`` is part of its address and never changes."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]
    annotations: Sequence[Annotation] = ()


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    """The JSON document that Grafana imports or provisions."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["kafkalog"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource_variable(), *map(_variable, dashboard.variables)]},
        "annotations": {"list": [_annotation(each) for each in dashboard.annotations]},
        "panels": list(_placed(dashboard.rows)),
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource",
            "query": "prometheus", "current": {}, "hide": 0}  # fmt: skip


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.series}, {variable.name})"
    return {
        "name": variable.name,
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "refresh": 2,  # when the time range changes
        "sort": 1,
    }


def _annotation(annotation: Annotation) -> dict[str, Any]:
    return {
        "name": annotation.name,
        "datasource": _DATASOURCE,
        "enable": True,
        "expr": annotation.expr,
        "titleFormat": annotation.title,
        "iconColor": annotation.colour,
        "useValueForTime": annotation.is_time,
    }


def _placed(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Rows and panels with ids and positions; a panel that does not fit begins a new line."""
    number, top = 0, 0
    for row in rows:
        number += 1
        header = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": _GRID_WIDTH, "h": 1},
        }
        yield header if row.repeat is None else {**header, "repeat": row.repeat}
        top += 1
        left, line_height = 0, 0
        for panel in row.panels:
            if left + panel.width > _GRID_WIDTH:
                top, left, line_height = top + line_height, 0, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left, line_height = left + panel.width, max(line_height, panel.height)
        top += line_height


def _panel(panel: Panel) -> dict[str, Any]:
    thresholds = [{"color": _GREEN, "value": None}] if panel.limits is None else (
        panel.limits.steps()
    )  # fmt: skip
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": thresholds},
        "custom": dict(panel.custom),
    }
    if panel.kind == "stat":
        defaults["color"] = {"mode": "thresholds"}
    return {
        "title": panel.title,
        "type": panel.kind,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": dict(panel.options),
        "targets": [_target(panel, number) for number in range(len(panel.queries))],
    }


def _target(panel: Panel, number: int) -> dict[str, Any]:
    query = panel.queries[number]
    is_table = panel.kind == "table"
    return {
        "refId": chr(ord("A") + number),
        "datasource": _DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "format": "table" if is_table else "heatmap" if panel.kind == "heatmap" else "time_series",
        "instant": is_table,
        "range": not is_table,
    }
