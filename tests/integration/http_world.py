"""What the HTTP tests share: batches to send, answers to expect, a raw socket."""

from __future__ import annotations

import base64
import http.client
import io
import socket
import time
from typing import TYPE_CHECKING, Any

from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record_batch import Codec
from kafkalog.server.protocol.errors import REGISTER
from tests.integration.daemon import Answer
from tests.partition_world import records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.format.records.record import Record
    from tests.integration.daemon import Daemon

BATCHES = "application/vnd.kafkalog.record-batches"


def refused(answer: Answer, status: int, code: int) -> dict[str, object]:
    """The answer is this error in the one shape; its body."""
    assert answer.status == status, answer.body
    body: dict[str, object] = answer.json
    assert body["error_code"] == code, body
    entry = REGISTER[code]
    assert entry.status == status
    assert body["message"]
    assert body["retriable"] is entry.retriable
    assert body["kafka_error"]
    assert body["request_id"] == answer.headers["X-Request-Id"]
    if status in (429, 503):
        assert int(answer.headers["Retry-After"]) >= 1
    check_sealed(answer)
    return body


def failed_entry(entry: dict[str, object], code: int) -> None:
    """One entry of an answer about several partitions is this error."""
    assert entry["error_code"] == code, entry
    assert entry["kafka_error"] == REGISTER[code].kafka_error
    assert entry["error"]
    assert "low_watermark" not in entry


def failed_operation(operation: dict[str, object], code: int) -> None:
    """An operation that outlasted its request ended with this error."""
    assert operation["state"] == "failed", operation
    error = operation["error"]
    assert isinstance(error, dict)
    assert error["error_code"] == code, error
    assert error["kafka_error"]
    assert error["message"]
    assert error["retriable"] is REGISTER[code].retriable


def check_sealed(answer: Answer) -> None:
    """Headers of every answer."""
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Server"] == "kafkalog"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch_of(
    *values: bytes | None,
    keys: Sequence[bytes | None] | None = None,
    timestamp_ms: int | None = None,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    is_transactional: bool = False,
) -> bytes:
    columns = RecordColumns.of(
        list(keys) if keys is not None else [None] * len(values),
        list(values),
        now_ms() if timestamp_ms is None else timestamp_ms,
    )
    return build_batch(
        columns,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        is_transactional=is_transactional,
    )


def append(
    daemon: Daemon, topic: str, data: bytes, *, partition: int = 0, query: str = ""
) -> Answer:
    path = f"/v1/topics/{topic}/partitions/{partition}/batches{query}"
    return daemon.request("POST", path, data, {"Content-Type": BATCHES})


def read_batches(daemon: Daemon, topic: str, offset: int, query: str = "") -> Answer:
    path = f"/v1/topics/{topic}/partitions/0/batches?offset={offset}{query}"
    return daemon.request("GET", path)


def stored(daemon: Daemon, topic: str) -> list[Record]:
    """All records of partition 0."""
    return records_of(read_batches(daemon, topic, 0).body)


def b64(data: bytes) -> str:
    """Base64 as Java's clients send it."""
    return base64.b64encode(data).decode()


def until(
    is_so: Callable[[], object],
    complaint: str = "it never came",
    *,
    seconds: float = 60,
    pace_seconds: float = 0.01,
) -> None:
    """Look until it is so: what another process does in its own time; AssertionError when late."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, complaint
        time.sleep(pace_seconds)


def others_in_work(daemon: Daemon) -> int:
    """How many requests are in work beside the look at their figure."""
    page = daemon.request("GET", "/metrics").body.decode()
    (line,) = [each for each in page.splitlines() if each.startswith("kafkalog_http_in_flight ")]
    return int(float(line.split()[1])) - 1


def delete_records(daemon: Daemon, *entries: tuple[str, int, int]) -> list[Any]:
    """Up to the offset of each topic and partition; what became of each, failures too."""
    partitions = [{"topic": t, "partition": p, "offset": o} for t, p, o in entries]
    answer = daemon.request("POST", "/v1/records:delete", {"partitions": partitions})
    assert answer.status == 200, answer.body
    return list(answer.json["partitions"])


def end_offset(daemon: Daemon, topic: str, partition: int = 0) -> int:
    """High watermark."""
    path = f"/topics/{topic}/partitions/{partition}/offsets"
    return int(daemon.request("GET", path).json["end_offset"])


class _Held(io.BytesIO):
    """Bytes that http.client may read as if from a socket."""

    def makefile(self, *_: object) -> _Held:
        return self

    def close(self) -> None:
        """Stays open: more answers may follow."""


class Wire:
    """A plain TCP connection to a daemon."""

    def __init__(self, daemon: Daemon, timeout: float = 15, receive_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", daemon.port))

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """All of it; a peer that has closed already is no error here."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def pieces(self) -> Iterator[bytes]:
        """What comes until the daemon closes."""
        while True:
            try:
                piece = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return
            if not piece:
                return
            yield piece

    def read_to_close(self) -> bytes:
        """Everything until the daemon closes; TimeoutError when it does not."""
        return b"".join(self.pieces())

    def read_answer(self, method: str = "GET") -> Answer:
        """One answer on a connection that stays open."""
        response = http.client.HTTPResponse(self.socket, method=method)
        response.begin()
        return Answer(response.status, dict(response.headers), response.read())


def parse_answers(data: bytes) -> list[Answer]:
    """All answers in what a connection gave."""
    held = _Held(data)
    answers = []
    while held.tell() < len(data):
        response = http.client.HTTPResponse(held)  # type: ignore[arg-type] # it only calls makefile
        response.begin()
        body = response.fp.read(int(response.headers.get("Content-Length", "0")))
        answers.append(Answer(response.status, dict(response.headers), body))
    return answers
