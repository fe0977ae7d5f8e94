"""Tables of Spark's catalog: how the options of ``CREATE TABLE ... USING kafkalog`` get here.

Spark stores them among the properties of the table, and asks the source for its columns with all
properties. When the table is read or written, Spark 4.3 passes no property to a Python source, but
the stored columns with their metadata. So the columns of a table carry its options. A table has one
set of options for both directions: each takes its own. Pure; any thread.
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

_PROVIDER, _OPTION = "provider", "option."
_SECRETS = ("token",)
_SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")
_ACCESS = {name.lower() for name in ACCESS_OPTIONS}
_OF_SOURCE = {name.lower() for name in SOURCE_OPTIONS} - _ACCESS
_OF_SINK = {name.lower() for name in (*SINK_OPTIONS, *BATCH_OPTIONS)}


def table_options(properties: Mapping[str, str]) -> dict[str, str] | None:
    """The options among the properties of a new table; None: they are options of a query.

    A directory is the table's location, not an option. Raises InvalidOption for a secret.
    """
    if _PROVIDER not in properties:
        return None
    given = {
        name.removeprefix(_OPTION).lower(): value
        for name, value in properties.items()
        if name.startswith(_OPTION)
    }
    for name in given:
        if name in _SECRETS:
            raise InvalidOption(
                f"Option {name} of a table would be stored as text in the catalog: use tokenFile "
                "or tokenEnv"
            )
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
    column of the table is written or read.
    """
    if "url" in given or "path" in given:
        return None
    texts = (each[METADATA_KEY] for each in columns if METADATA_KEY in each)
    stored = next(texts, None)
    return None if stored is None else json.loads(str(stored)) | dict(given)


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
