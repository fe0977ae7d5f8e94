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


def test_options_in_the_comment_of_a_column() -> None:
    """As SQL writes them; another comment is none of ours."""
    comment = {"comment": 'kafkalog {"url": "http://a:1", "startingOffsets": "earliest", "n": 5}'}
    wanted = {"url": "http://a:1", "startingoffsets": "earliest", "n": "5"}
    assert with_table({}, [{"comment": "kafkalog is where it is from"}, comment]) == wanted
    assert with_table({"n": "6"}, [comment]) == wanted | {"n": "6"}
    assert with_table({"url": "http://b:1"}, [comment]) is None
    with pytest.raises(InvalidOption, match=r"comment of a column is 'kafkalog \{url.*are JSON"):
        with_table({}, [{"comment": "kafkalog {url: 'http://a:1'}"}])
