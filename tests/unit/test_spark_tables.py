"""Goal: the options of a table of Spark's catalog come back from the metadata of its columns.
Method: properties as Spark 4.3 passes them for a new table.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.tables import for_reading, for_writing, metadata_of, table_options, with_table

PROPERTIES = {"provider": "kafkalog", "owner": "me", "mine": "1", "url": "http://a:1", "topic": "t"}
OF_URL = PROPERTIES | {"option.url": "http://a:1", "option.Topic": "t", "option.acks": "1"}
COLUMN: dict[str, Any] = dict(metadata_of({"url": "http://a:1", "topic": "t", "acks": "1"}))


def test_options_among_properties() -> None:
    """The location of a table without url is its directory. A query has options alone."""
    assert table_options(OF_URL | {"path": "file:/warehouse"}) == {
        "url": "http://a:1",
        "topic": "t",
        "acks": "1",
    }
    of_path = {"provider": "kafkalog", "option.subscribe": "a", "path": "file:/logs"}
    assert table_options(of_path) == {"subscribe": "a", "path": "/logs"}
    assert table_options({"url": "http://a:1", "subscribe": "a"}) is None
    with pytest.raises(InvalidOption, match="use tokenFile"):
        table_options(OF_URL | {"option.token": "x"})


def test_both_directions_share_them() -> None:
    stored = with_table({"startingoffsets": "earliest"}, [{}, COLUMN])
    assert stored is not None
    assert for_reading(stored) == {
        "url": "http://a:1",
        "subscribe": "t",
        "startingoffsets": "earliest",
    }
    assert for_writing(stored) == {"url": "http://a:1", "topic": "t", "acks": "1"}
    assert for_writing({"subscribe": "t"}) == {"topic": "t"}
    assert for_writing({"subscribe": "t,u"}) == {}


def test_columns_of_a_table_in_another_query() -> None:
    """Its own place counts."""
    assert with_table({"url": "http://b:1"}, [COLUMN]) is None
    assert with_table({"path": "/logs"}, [COLUMN]) is None
    assert with_table({}, [{}]) is None
