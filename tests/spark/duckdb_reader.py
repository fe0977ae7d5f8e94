"""DuckDB as a reader of Iceberg tables, by the extension of a package and not of the net."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog

if TYPE_CHECKING:
    from tests.archive_world import IcebergPlace


def query_duckdb(place: IcebergPlace, query: str) -> list[Any]:
    """The rows of a query with ``{table}`` in it. Skips the test without DuckDB."""
    duckdb = pytest.importorskip("duckdb")
    with closing(load_catalog("default", **place.properties)) as catalog:
        metadata = catalog.load_table("lake.orders").metadata_location.removeprefix("file://")
    with closing(duckdb.connect()) as connection:
        for name in ("avro", "iceberg"):  # the first one is needed by the second
            connection.load_extension(_extension(name))
        found: list[Any] = connection.sql(
            query.format(table=f"iceberg_scan('{metadata}')")
        ).fetchall()
    return found


def _extension(name: str) -> str:
    """The file of an extension in its package."""
    package = pytest.importorskip(f"duckdb_extension_{name}")
    file: str
    (file,) = (
        os.path.join(where, each)
        for where, _, names in os.walk(os.path.dirname(package.__file__))
        for each in names
        if each == f"{name}.duckdb_extension"
    )
    return file


def read_by_duckdb(place: IcebergPlace) -> list[tuple[int, int]]:
    """Partition and offset of all rows, sorted."""
    return query_duckdb(place, 'SELECT "partition", "offset" FROM {table} ORDER BY ALL')
