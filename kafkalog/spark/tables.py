"""Tables of Spark's catalog: how the options of ``CREATE TABLE ... USING kafkalog`` get here.

Spark stores them among the properties of the table, and asks the source for its columns with all
properties. When the table is read or written, Spark 4.3 passes no property to a Python source, but
the stored columns with their metadata. So the columns of a table carry its options: in metadata of
ours, or in the comment of a column, which SQL can write: ``COMMENT 'kafkalog {"url": "..."}'``. A
table has one set of options for both directions: each takes its own. Pure; any thread.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.options import ACCESS_OPTIONS, SOURCE_OPTIONS
from kafkalog.spark.sink.options import BATCH_OPTIONS, SINK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

METADATA_KEY = "kafkalog.options"

COMMENT_PREFIX = "kafkalog "
_PROVIDER, _OPTION = "provider", "option."
_SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")
_ACCESS = {name.lower() for name in ACCESS_OPTIONS}
_OF_SOURCE = {name.lower() for name in SOURCE_OPTIONS} - _ACCESS
_OF_SINK = {name.lower() for name in (*SINK_OPTIONS, *BATCH_OPTIONS)}


def table_options(properties: Mapping[str, str]) -> dict[str, str] | None:
    """The options among the properties of a new table; None: they are options of a query.

    A directory is the table's location, not an option.
    """
    if _PROVIDER not in properties:
        return None
    given = {
        name.removeprefix(_OPTION).lower(): value
        for name, value in properties.items()
        if name.startswith(_OPTION)
    }
    if "url" not in given and "path" in properties:
        path = properties["path"]
        given["path"] = path.removeprefix("file:") if path.startswith("file:/") else path
    return given


def metadata_of(given: Mapping[str, str]) -> dict[str, str]:
    """The metadata of each column of a table with these options."""
    return {METADATA_KEY: json.dumps(dict(given), sort_keys=True)}


def with_table(
    given: Mapping[str, str], columns: Iterable[Mapping[str, object]]
) -> dict[str, str] | None:
    """The options of a query of a table, by the metadata of its columns; None: it is of no table.

    Options of the query have precedence. A place in them is that of another query, in which a
    column of the table is written or read. Raises InvalidOption.
    """
    if "url" in given or "path" in given:
        return None
    stored = next(filter(None, map(_stored, columns)), None)
    return None if stored is None else stored | dict(given)


def _stored(column: Mapping[str, object]) -> dict[str, str] | None:
    """The options in the metadata of a column. Raises InvalidOption for a malformed comment."""
    if METADATA_KEY in column:
        of_table: dict[str, str] = json.loads(str(column[METADATA_KEY]))
        return of_table
    comment = str(column.get("comment", ""))
    if not comment.startswith(COMMENT_PREFIX + "{"):
        return None
    try:
        written = json.loads(comment.removeprefix(COMMENT_PREFIX))
    except ValueError as error:
        raise InvalidOption(
            f"The comment of a column is '{comment[:200]}', but the options of a table are JSON in "
            """it, as kafkalog {"url": "http://host:8082", "topic": "orders"}"""
        ) from error
    return {str(name).lower(): str(value) for name, value in written.items()}


def for_reading(given: Mapping[str, str]) -> dict[str, str]:
    """The options of a table for a reader; without a subscription it reads option topic."""
    known = {name: value for name, value in given.items() if name.lower() not in _OF_SINK}
    if "topic" in given and not any(name in given for name in _SUBSCRIPTIONS):
        known["subscribe"] = given["topic"]
    return known


def for_writing(given: Mapping[str, str]) -> dict[str, str]:
    """The options of a table for a writer; without option topic it writes to the subscribed one."""
    known = {name: value for name, value in given.items() if name.lower() not in _OF_SOURCE}
    subscribed = given.get("subscribe", "")
    if "topic" not in given and subscribed and "," not in subscribed:
        known["topic"] = subscribed
    return known
