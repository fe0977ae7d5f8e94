"""Grafana's JSON for rows of panels, which are placed from left to right.

Owns the form of a dashboard: schema version, ids, positions on the grid, the data source as a
variable. ``tools/dashboards.py`` owns the contents. Pure: equal dashboards give equal JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Json = dict[str, Any]

SCHEMA_VERSION = 39
_GRID_WIDTH = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_GREEN, _ORANGE, _RED = "green", "orange", "red"


class Query(NamedTuple):
    """One PromQL expression. ``legend`` is Grafana's template; empty names all labels."""

    expr: str
    legend: str = ""


class Row(NamedTuple):
    """Panels under a title; ``repeat`` is a variable: the row is repeated for each value."""

    title: str
    panels: Sequence[Json]
    repeat: str | None = None


def limits(warn: float, bad: float) -> list[Json]:
    """Thresholds of a ratio or count for a warning and for a bad state: colours upwards.

    ``bad`` below ``warn`` means that small values are the bad ones; equal: nothing in between.
    """
    if bad < warn:
        steps = [(None, _RED), (bad, _ORANGE), (warn, _GREEN)]
    elif bad == warn:
        steps = [(None, _GREEN), (bad, _RED)]
    else:
        steps = [(None, _GREEN), (warn, _ORANGE), (bad, _RED)]
    return [{"color": colour, "value": value} for value, colour in steps]


def panel(  # noqa: PLR0913 - the parts of a panel, by name
    title: str,
    kind: str,
    queries: Sequence[Query],
    unit: str = "short",
    *,
    width: int = 8,
    height: int = 8,
    description: str = "",
    steps: list[Json] | None = None,
    custom: Json | None = None,
    options: Json | None = None,
) -> Json:
    """One panel. ``kind`` is Grafana's type; ``unit`` one of its units; sizes in grid cells.

    ``options`` go to the panel, ``custom`` to its fields; ``steps`` are ``limits``. Tables show the
    newest values.
    """
    thresholds = steps or [{"color": _GREEN, "value": None}]
    defaults: Json = {
        "unit": unit,
        "thresholds": {"mode": "absolute", "steps": thresholds},
        "custom": custom or {},
    }
    if kind == "stat":
        defaults["color"] = {"mode": "thresholds"}
    return {
        "gridPos": {"w": width, "h": height},
        "title": title,
        "type": kind,
        "description": description,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options or {},
        "targets": [_target(kind, number, query) for number, query in enumerate(queries)],
    }


def _target(kind: str, number: int, query: Query) -> Json:
    is_table = kind == "table"
    return {
        "refId": chr(ord("A") + number),
        "datasource": _DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "format": "table" if is_table else "heatmap" if kind == "heatmap" else "time_series",
        "instant": is_table,
        "range": not is_table,
    }


def variable(name: str, series: str) -> Json:
    """A selection at the top of the page: the values of a label of a series."""
    query = f"label_values({series}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "refresh": 2,  # when the time range changes
        "sort": 1,
    }


def annotation(name: str, expr: str, title: str, colour: str, *, is_time: bool = False) -> Json:
    """Marks on the time axis. ``is_time``: the value is a time in milliseconds."""
    return {
        "name": name,
        "datasource": _DATASOURCE,
        "enable": True,
        "expr": expr,
        "titleFormat": title,
        "iconColor": colour,
        "useValueForTime": is_time,
    }


def dashboard(
    *,
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Json],
    rows: Sequence[Row],
    annotations: Sequence[Json] = (),
) -> Json:
    """The document that Grafana imports or provisions; ``uid``, in its address, never changes."""
    datasource = {"name": "datasource", "label": "Data source", "type": "datasource",
                  "query": "prometheus", "current": {}, "hide": 0}  # fmt: skip
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["kafkalog"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [datasource, *variables]},
        "annotations": {"list": list(annotations)},
        "panels": list(_placed(rows)),
    }


def _placed(rows: Sequence[Row]) -> Iterator[Json]:
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
        for each in row.panels:
            width, height = each["gridPos"]["w"], each["gridPos"]["h"]
            if left + width > _GRID_WIDTH:
                top, left, line_height = top + line_height, 0, 0
            number += 1
            place = {"x": left, "y": top, **each["gridPos"]}
            yield {"id": number, **each, "gridPos": place}
            left, line_height = left + width, max(line_height, height)
        top += line_height
