"""Goal: Arrow leaves the daemon in Spark's Kafka schema and comes in again, for any Arrow library.
Method: pyarrow reads and writes against a live daemon; batches, pages and offsets are the judges.
"""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record_batch import Codec
from kafkalog.format.wire.arrow_columns import SCHEMA
from tests.integration.daemon import ROOT, Daemon
from tests.integration.http_world import append, now_ms, refused
from tests.integration.stream_world import NDJSON, Duplex
from tests.partition_world import records_of

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.format.records.record import Record
    from tests.integration.daemon import Answer

SETTINGS = {"socket_request_max_bytes": str(8 << 20)}
ARROW = "application/vnd.apache.arrow.stream"
END = b"\xff\xff\xff\xff\0\0\0\0"


def stream_of(*batches: pa.RecordBatch, codec: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def produce(
    daemon: Daemon, path: str, stream: bytes, query: str = "", accept: str = "*/*"
) -> Answer:
    headers = {"Content-Type": ARROW, "Accept": accept}
    return daemon.request("POST", f"/v1/topics/{path}/records{query}", stream, headers)


def ask(daemon: Daemon, path: str) -> Answer:
    headers = {"Accept": ARROW, "Accept-Encoding": "gzip"}
    return daemon.request("GET", f"/v1/topics/{path}", headers=headers)


def table_of(answer: Answer) -> pa.Table:
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == ARROW
    assert "Content-Encoding" not in answer.headers
    with pa.ipc.open_stream(answer.body) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table


def stored(daemon: Daemon, topic: str, partition: int = 0) -> list[Record]:
    path = f"/v1/topics/{topic}/partitions/{partition}/batches?offset=0&max_bytes=9000000"
    return records_of(daemon.request("GET", path).body)


def row_of(record: Record, topic: str, partition: int = 0) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": 0,
        "headers": [{"key": name.decode(), "value": value} for name, value in record.headers]
        or None,
    }


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    index = table.schema.get_field_index("timestamp")
    rows: list[dict[str, Any]] = table.set_column(
        index, "timestamp", table.column(index).cast(pa.int64())
    ).to_pylist()
    return rows


def fill(daemon: Daemon, topic: str, partition: int = 0) -> None:
    """Three batches, one compressed; nulls, headers."""
    stamp = now_ms()
    for codec in (Codec.NONE, Codec.LZ4, Codec.NONE):
        columns = RecordColumns.of(
            [b"k", None, b""],
            [b"v" * 50, b"", None],
            [stamp, stamp + 1, stamp - 5],
            [[(b"h", b"x"), (b"h", None)], [], [(b"n", b"")]],
        )
        data = build_batch(columns, codec=codec)
        assert append(daemon, topic, data, partition=partition).status == 200


def test_a_page_in_arrow(daemon: Daemon) -> None:
    """M01: every field of every record; where the next page begins is in the headers."""
    daemon.create_topic("out")
    fill(daemon, "out")
    expected = [row_of(record, "out") for record in stored(daemon, "out")]
    answer = ask(daemon, "out/partitions/0/records?offset=0")
    table = table_of(answer)
    assert table.schema == SCHEMA
    assert rows_of(table) == expected
    assert answer.headers["Kafka-Next-Offset"] == "9"
    assert answer.headers["Kafka-Up-To-Date"] == "true"
    start, found = 4, []
    while start < 9:
        page = ask(daemon, f"out/partitions/0/records?offset={start}&max_records=2")
        found += rows_of(table_of(page))
        start = int(page.headers["Kafka-Next-Offset"])
    assert found == expected[4:]


def test_what_came_out_goes_in_again(daemon: Daemon) -> None:
    daemon.create_topic("from")
    daemon.create_topic("to")
    fill(daemon, "from")
    table = table_of(ask(daemon, "from/partitions/0/records?offset=0"))
    table = table.drop_columns(["topic", "offset", "timestampType"])
    for codec in (None, "zstd"):
        answer = produce(daemon, "to", stream_of(*table.to_batches(), codec=codec))
        assert answer.status == 200, answer.body
        assert answer.json["count"] == 9
    again = stored(daemon, "to")
    assert [record.offset for record in again] == list(range(18))
    first = stored(daemon, "from")
    for mine, theirs in zip(again, [*first, *first], strict=True):
        assert (mine.key, mine.value, mine.timestamp, mine.headers) == (
            theirs.key,
            theirs.value,
            theirs.timestamp,
            theirs.headers,
        )


def test_the_column_chooses_the_partition(daemon: Daemon) -> None:
    """Else the path does."""
    daemon.create_topic("spread", 4)
    named = pa.record_batch(
        {"value": [b"a", b"b", b"c"], "partition": pa.array([3, None, 3], pa.int32())}
    )
    answer = produce(daemon, "spread/partitions/1", stream_of(named))
    assert [(each["partition"], each["count"]) for each in answer.json["partitions"]] == [
        (1, 1),
        (3, 2),
    ]


def test_what_a_message_inflates_to_counts_as_held(tmp_path: Path) -> None:
    """Small streams of large messages together keep the bound of all bodies."""
    stream = stream_of(pa.record_batch({"value": [b"x" * 100] * 70_000}), codec="zstd")
    assert len(stream) < 300_000
    with Daemon(tmp_path, queued_max_request_bytes=str(6 << 20)) as lone:
        lone.create_topic("t")
        headers = {"Content-Type": NDJSON, "Accept": NDJSON}
        with Duplex(lone, "/v1/topics/t/records", headers) as other:
            other.send(b'{"value":1}\n{')
            assert other.line()["offset"] == 0
            refused(produce(lone, "t", stream), 429, 42902)
            other.send(b"}\n")
            assert other.line()["offset"] == 1
            assert produce(lone, "t", stream).json["count"] == 70_000
            other.finish()


def test_receipts_while_the_stream_goes_on(daemon: Daemon) -> None:
    daemon.create_topic("duplex")
    batch = pa.record_batch({"value": [b"a", b"b"]})
    whole = stream_of(batch, batch)
    size = len(whole) - len(stream_of(batch))
    first_end = len(whole) - len(END) - size
    headers = {"Content-Type": ARROW, "Accept": NDJSON}
    with Duplex(daemon, "/v1/topics/duplex/records", headers) as client:
        client.send(whole[:first_end])
        assert [client.line()["offset"] for _ in range(2)] == [0, 1]
        client.send(whole[first_end:-1])
        assert [client.line()["offset"] for _ in range(2)] == [2, 3]
        client.send(whole[-1:])
        client.finish()
        assert client.rest() == []


def test_what_is_sound_in_front_of_a_fault_is_appended_and_told(daemon: Daemon) -> None:
    """M02: a stream that breaks off, and one with a partition below 0 in its second batch."""
    daemon.create_topic("cut")
    good = pa.record_batch({"value": [b"a"], "partition": pa.array([0], pa.int32())})
    bad = pa.record_batch({"value": [b"b"], "partition": pa.array([-1], pa.int32())})
    answer = produce(daemon, "cut", stream_of(good, good)[:-100])
    assert (answer.status, answer.json["count"]) == (200, 1)
    (error,) = answer.json["errors"]
    assert (error["error_code"], error["end_of_stream"]) == (400, True)
    answer = produce(daemon, "cut", stream_of(good, bad), accept=NDJSON)
    first, last = map(json.loads, answer.body.splitlines())
    assert (first["offset"], first["error_code"]) == (1, None)
    assert (last["error_code"], last["end_of_stream"]) == (422, True)
    assert last["details"] == {"column": "partition"}
    assert len(stored(daemon, "cut")) == 2


def test_nothing_is_appended_of_what_is_refused_at_once(daemon: Daemon) -> None:
    """M02: by the number that says whose fault it is; the column by its name."""
    daemon.create_topic("refused")
    value = pa.array([b"v"])
    unknown = pa.record_batch({"value": value, "offset": pa.array([1])})
    body = refused(produce(daemon, "refused", stream_of(unknown)), 422, 422)
    assert "offset" in str(body["message"])
    refused(produce(daemon, "refused", b'[{"value":"x"}]'), 400, 400)
    refused(produce(daemon, "refused", b""), 400, 400)
    large = pa.record_batch({"value": [bytes(9 << 20)]})
    for codec in (None, "zstd"):
        refused(produce(daemon, "refused", stream_of(large, codec=codec)), 413, 41302)
    fine = stream_of(pa.record_batch({"value": value}))
    refused(produce(daemon, "refused", fine, "?value_format=json"), 400, 40005)
    refused(produce(daemon, "refused/partitions/9", fine), 404, 40402)
    producer = {"Kafka-Producer-Id": "1", "Kafka-Producer-Epoch": "0", "Kafka-Base-Sequence": "0"}
    headers = {"Content-Type": ARROW, **producer}
    answer = daemon.request("POST", "/v1/topics/refused/partitions/0/records", fine, headers)
    refused(answer, 400, 40005)
    refused(produce(daemon, "refused/partitions/0", fine, "?expected_offset=7"), 412, 41201)
    assert stored(daemon, "refused") == []
    assert produce(daemon, "refused", fine, "?acks=0").status == 202


@pytest.fixture
def bare_daemon(tmp_path: Path) -> Daemon:
    hidden = tmp_path / "hidden" / "pyarrow"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')\n"
    )
    return Daemon(tmp_path / "daemon", environment={"PYTHONPATH": str(hidden.parent)})


def test_without_pyarrow_everything_else_is_served(bare_daemon: Daemon) -> None:
    with bare_daemon as daemon:
        daemon.create_topic("t")
        fill(daemon, "t")
        fine = stream_of(pa.record_batch({"value": [b"v"]}))
        for answer, status in (
            (ask(daemon, "t/partitions/0/records?offset=0"), 406),
            (ask(daemon, "t/records?from=earliest"), 406),
            (produce(daemon, "t", fine), 415),
        ):
            assert "pip install 'kafkalog[arrow]'" in str(
                refused(answer, status, status)["message"]
            )
        path = "/v1/topics/t/partitions/0/records?offset=0&key_format=base64&value_format=base64"
        assert len(daemon.request("GET", path).json) == 9


def test_the_examples_of_the_docs_run(daemon: Daemon) -> None:
    text = (ROOT / "docs" / "reference" / "http-arrow.md").read_text(encoding="utf-8")
    read, write = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    daemon.create_topic("orders")
    names: dict[str, Any] = {}
    for code, rows in ((read, 0), (write, 2), (read, 2)):
        exec(code.replace("127.0.0.1:8082", f"127.0.0.1:{daemon.port}"), names)
        assert names["table"].num_rows == rows
    assert names["table"]["value"].to_pylist() == [b"1", b"2"]
