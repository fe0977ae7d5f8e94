"""DuckDB as a reader of Iceberg tables, by the extension of a package and not of the net."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from pyiceberg.catalog import load_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


class Place(Protocol):
    """Where a catalog is that has the table lake.orders."""

    @property
    def properties(self) -> dict[str, str]:
        """Of the catalog."""


def query_duckdb(place: Place, query: str) -> list[Any]:
    """The rows of a query with ``{table}`` in it. Skips the test without DuckDB."""
    with _result(place, query) as result:
        found: list[Any] = result.fetchall()
    return found


def arrow_by_duckdb(place: Place) -> pa.Table:
    """All rows and columns. Skips the test without DuckDB."""
    with _result(place, "SELECT * FROM {table}") as result:
        return result.to_arrow_table()


@contextmanager
def _result(place: Place, query: str) -> Iterator[Any]:
    duckdb = pytest.importorskip("duckdb")
    with closing(load_catalog("default", **place.properties)) as catalog:
        metadata = catalog.load_table("lake.orders").metadata_location.removeprefix("file://")
    with closing(duckdb.connect()) as connection:
        for name in ("avro", "iceberg"):  # the first one is needed by the second
            connection.load_extension(_extension(name))
        yield connection.sql(query.format(table=f"iceberg_scan('{metadata}')"))


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


def read_by_duckdb(place: Place) -> list[tuple[int, int]]:
    """Partition and offset of all rows, sorted."""
    return query_duckdb(place, 'SELECT "partition", "offset" FROM {table} ORDER BY ALL')
