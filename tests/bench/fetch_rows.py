"""Fetch from the page cache: raw batches and JSON pages, of logs planted under both servers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalog.server.protocol.media_types import ARROW, EVENT_STREAM, JSON, NDJSON
from tests.bench import datasets, kafka_wire
from tests.bench.load_client import Load, build_request, run_load
from tests.bench.planting import plant_unclean
from tests.bench.results import LOAD_CLIENT, Goal, Result, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.bench import Bench
    from tests.bench.daemon_side import BenchDaemon
    from tests.bench.kafka_side import BenchBroker
    from tests.bench.load_client import LoadResult

BINARY = "application/vnd.kafka.binary.v2+json"
_PAGE = 1 << 20
_RECORDS = 8_000  # of 100 bytes: about 1 MiB of the log
_V2 = "/topics/fetch/partitions/0/messages?offset={start}&count=8000"
_NATIVE = (
    "/v1/topics/fetch/partitions/0/records?offset={start}&until_offset={end}"
    "&max_bytes=8388608&value_format=base64&key_format=base64"
)


def plant_log(bench: Bench) -> int:
    """The log ``fetch`` of 1 KiB records under both servers; its end offset."""
    total = bench.size(1 << 30, 200 << 20)
    source = bench.directory("source")
    _, end = datasets.write_log(
        source, total_bytes=total - (1 << 20), batch_records=125, value_bytes=datasets.RECORD_BYTES
    )
    plant_unclean(bench, "fetch", [source])
    return end


def fetch_raw(bench: Bench) -> Result:
    """Pages of 1 MiB, the default of both consumers, two connections."""
    end = plant_log(bench)
    with bench.running_daemon() as daemon, bench.running_broker() as broker:
        path = f"/v1/topics/fetch/partitions/0/batches?max_bytes={_PAGE}&offset="
        offsets = daemon.walk(path, end)
        load = Load(len(offsets) * bench.size(4, 2), connections=2)

        def ours() -> Sample:
            requests = [build_request("GET", f"{path}{offset}") for offset in offsets]
            return _rate(daemon.load(requests, load))

        def theirs(broker: BenchBroker) -> Sample:
            requests = [
                kafka_wire.fetch_request("fetch", offset, max_bytes=_PAGE) for offset in offsets
            ]
            return _rate(run_load(broker, requests, load, kafka_wire.fetched_length))

        rounds = bench.alternate(ours, None if broker is None else partial(theirs, broker))
    return Result(
        name=bench.name,
        what="Fetch raw batches, 1 KiB records, 1 MiB a request",
        unit="MB/s",
        durability="from the page cache",
        goal=Goal(">= 1.2x and >= 1,000 MB/s", at_least=1000, ratio=1.2),
        rounds=rounds,
        client=LOAD_CLIENT,
        notes=(
            "2 connections; the client finds lengths and checks status and error codes",
            "Kafka: Fetch v4 at the same offsets; kafkalog answers with whole batches, Kafka with"
            " 1 MiB that may end within one",
        ),
    )


def _rate(result: LoadResult) -> Sample:
    return result.sample(result.bytes_received / result.seconds / 1e6, 99)


def _records(bench: Bench, form: str, accept: str, path: str = _NATIVE) -> Result:
    """Pages or streams of 8,000 records of 100 bytes, two connections."""
    total = bench.size(256 << 20, 64 << 20)
    source = bench.directory("source")
    _, end = datasets.write_log(
        source, total_bytes=total, batch_records=1000, value_bytes=datasets.SMALL_BYTES
    )
    plant_unclean(bench, "fetch", [source], with_kafka=False)
    count = end // _RECORDS
    requests = [
        build_request("GET", path.format(start=start, end=start + _RECORDS), accept=accept)
        for start in range(0, count * _RECORDS, _RECORDS)
    ]
    with bench.running_daemon() as daemon:
        _check_answers(daemon, path, accept)

        def ours() -> Sample:
            found = daemon.load(requests, Load(count, connections=2))
            answered_mb_s = found.bytes_received / found.seconds / 1e6
            return found.sample(count * _RECORDS / found.seconds, 99, answered_mb_s=answered_mb_s)

        rounds = bench.alternate(ours, None)
    return Result(
        name=bench.name,
        what=f"Fetch {form}, 100-byte records, {_RECORDS:,} a request",
        unit="records/s",
        durability="from the page cache",
        goal=Goal(">= 800,000/s", at_least=800_000),
        rounds=rounds,
        client=LOAD_CLIENT,
        notes=("2 connections; text forms have values in base64",),
    )


def _check_answers(daemon: BenchDaemon, path: str, accept: str) -> None:
    """That a request is answered with all of its records, and not one more."""
    answer = daemon.request("GET", path.format(start=0, end=_RECORDS), None, {"Accept": accept})
    assert answer.status == 200, answer.body[:500]
    assert answer.headers["Content-Type"].startswith(accept), answer.headers
    if accept == ARROW:
        assert pa.ipc.open_stream(answer.body).read_all().num_rows == _RECORDS
    else:
        assert answer.body.count(b'"offset":') == _RECORDS


ROWS: dict[str, Callable[[Bench], Result]] = {
    "fetch_raw": fetch_raw,
    "fetch_json": partial(_records, form="JSON (v2)", accept=BINARY, path=_V2),
    "fetch_json_native": partial(_records, form="JSON (native)", accept=JSON),
    "fetch_lines": partial(_records, form="lines (NDJSON)", accept=NDJSON),
    "fetch_events": partial(_records, form="server-sent events", accept=EVENT_STREAM),
    "fetch_arrow": partial(_records, form="Arrow", accept=ARROW),
}
