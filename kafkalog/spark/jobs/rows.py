"""The rows of a job as values of JSON, and as a Parquet file.

A row is a NamedTuple; its fields are the columns: int, float, str and bool, or None as well. One
thread.
"""

from __future__ import annotations

import importlib
import types
import typing
from typing import TYPE_CHECKING, Any

from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARROW_NAMES = {int: "int64", float: "float64", str: "string", bool: "bool_"}


class ArrowMissing(KafkalogError):
    """pyarrow is not there; the message says what to install."""


def columns_of(kind: type[tuple[Any, ...]]) -> dict[str, type]:
    """Names and types of the fields of a NamedTuple, without the None that a field may be."""
    columns: dict[str, type] = {}
    for name, hint in typing.get_type_hints(kind).items():
        choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        (columns[name],) = (each for each in choices if each is not type(None))
    return columns


def json_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Each row as an object."""
    return [row._asdict() for row in rows]


def write_parquet(path: str, kind: type[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]]) -> None:
    """All rows into a new file, under another name until it is whole and synced.

    Replaces what was there. Raises ArrowMissing and OSError; the old file is still there then.
    """
    try:
        pyarrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ArrowMissing(
            "Parquet needs pyarrow: pip install 'kafkalog[spark]', or use --output json"
        ) from error
    columns = columns_of(kind)
    schema = pyarrow.schema(
        [(name, getattr(pyarrow, _ARROW_NAMES[each])()) for name, each in columns.items()]
    )
    values = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
    filesystem = SystemFilesystem()
    partial = f"{path}.{SystemRandom().uuid_bytes().hex()}.tmp"
    try:
        parquet.write_table(pyarrow.table(values, schema=schema), partial)
        file = filesystem.open_write(partial, create=False)
        file.sync()
        file.close()
        filesystem.rename(partial, path)
    except BaseException:
        if filesystem.exists(partial):
            filesystem.unlink(partial)
        raise
    filesystem.sync_dir(path.rpartition("/")[0] or "/")
