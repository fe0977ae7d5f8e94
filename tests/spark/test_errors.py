"""Goal: a user who made a mistake reads in the first line what it was and what to do, and the whole
takes no more than a screen.
Method: the texts of Spark's exceptions, in batches and streams, over directories and daemons.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.util import handle_worker_exception

from kafkalog.client.errors import AccessDenied, ClientError, ConnectFailed, NotAuthenticated
from kafkalog.errors import KafkalogError, UnknownTopic
from kafkalog.spark.user_errors import for_users
from tests.integration.access_world import access_settings, ask, token_of
from tests.integration.daemon import Daemon, ReservedPort
from tests.spark.log_directory import LogDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SCREEN_LINES = 40
BATCH_HEADER_BYTES = 61


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> LogDirectory:
    """Topic a begins at offset 10, topic b has a damaged batch before others."""
    made = LogDirectory(tmp_path_factory.mktemp("errors") / "logs")
    made.fill("a", 0, 10, 10)
    file = made.fill("b", 0, 0, 10)
    made.fill("b", 0, 10, 10)
    data = bytearray(file.read_bytes())
    data[BATCH_HEADER_BYTES + 20] ^= 255
    file.write_bytes(data)
    return made


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """It wants a token, and lets the reader have topic t-1 only."""
    root = tmp_path_factory.mktemp("guarded")
    with Daemon(root, **access_settings(root)) as one:
        for name in ("t-1", "private"):
            ask(one, "admin", "POST", "/admin/topics", {"topic_name": name})
        yield one


def batch(spark: SparkSession, **options: Any) -> Callable[[], Any]:
    return lambda: spark.read.format("kafkalog").options(**options).load().collect()


def stream(spark: SparkSession, tmp_path: Path, **options: Any) -> Callable[[], Any]:
    def run() -> None:
        frame = spark.readStream.format("kafkalog").options(**options).load()
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    return run


def message_of(work: Callable[[], Any]) -> str:
    """Of at most a screen, with no Python stack."""
    with pytest.raises(PySparkException) as caught:
        work()
    text = str(caught.value)
    assert "Traceback" not in text, text
    assert len(text.strip().splitlines()) <= SCREEN_LINES, text
    return text


def says(text: str, cause: str, remedy: str) -> bool:
    """Both in the first line."""
    first = next(line for line in text.splitlines() if re.search(cause, line))
    return text.index(first) < 200 and re.search(remedy, first) is not None


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UnknownTopic("There is no topic a"), "kafkalog.errors.UnknownTopic: There is no topic a"),
        (ConnectFailed("No answer from x"), "SourceFailed: No answer from x. Check option url,"),
        (NotAuthenticated("Log in."), "SourceFailed: Log in. Give credentials: option tokenFile"),
        (AccessDenied("No"), "SourceFailed: No. Ask an operator for access"),
        (PermissionError(13, "Permission denied", "/logs"), "SourceFailed: /logs cannot be read"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_a_worker_sends(error: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, in a worker of Spark; the stack where it is asked for, and of errors of our own."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    (sent,) = sent_by_worker(error).splitlines()
    assert line in sent
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.setenv("SPARK_TRACEBACK_WITH_LOCALS", "1")
    assert "Traceback" in sent_by_worker(error)
    monkeypatch.delenv("SPARK_TRACEBACK_WITH_LOCALS")
    assert "Traceback" in sent_by_worker(AssertionError("a bug"))


def sent_by_worker(error: Exception) -> str:
    """What PySpark writes to the JVM: a number, a length and the text."""
    sent = BytesIO()
    try:
        with for_users():
            raise error
    except (KafkalogError, ClientError, AssertionError) as raised:
        handle_worker_exception(raised, sent)
    return sent.getvalue()[8:].decode()


LOST = r"a-0 \[0, 10\) are missing"
BATCHES: list[tuple[dict[str, str], str, str]] = [
    ({"subscribe": "a", "startingOffset": "0"}, "no option startingoffset", "did you mean"),
    ({"subscribe": "a", "checkCrcs": "no"}, "checkCrcs is 'no'", "must be true or false"),
    ({"subscribe": "c"}, "There is no topic c", "existing topics: a, b"),
    ({"subscribe": "a", "startingOffsets": '{"a":{"0":0}}'}, LOST, "failOnDataLoss=false"),
    ({"subscribe": "b"}, r"b-0: the batch at offset 0 is not valid.*\.log", "segments verify"),
]


@pytest.mark.parametrize(("options", "cause", "remedy"), BATCHES, ids=lambda each: str(each)[:20])
def test_a_batch_query(
    spark: SparkSession, logs: LogDirectory, options: dict[str, str], cause: str, remedy: str
) -> None:
    text = message_of(batch(spark, path=str(logs.path), **options))
    assert says(text, cause, remedy), text


@pytest.mark.parametrize(
    ("options", "cause", "remedy"),
    [*BATCHES, ({"subscribe": "a", "endingOffsets": "latest"}, "endingOffsets", "has no end")],
    ids=lambda each: str(each)[:20],
)
def test_a_stream(
    spark: SparkSession,
    logs: LogDirectory,
    tmp_path: Path,
    options: dict[str, str],
    cause: str,
    remedy: str,
) -> None:
    given = {"startingOffsets": "earliest"} | options
    text = message_of(stream(spark, tmp_path, path=str(logs.path), **given))
    assert says(text, cause, remedy), text


def test_no_daemon(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    port = ReservedPort()
    text = message_of(batch(spark, url=f"http://127.0.0.1:{port.number}", subscribe="a"))
    assert says(text, f"127.0.0.1:{port.number}", "Check option url, and that the daemon runs"), (
        text
    )


@pytest.mark.parametrize("is_stream", [False, True])
def test_no_permission(
    spark: SparkSession, guarded: Daemon, tmp_path: Path, is_stream: bool
) -> None:
    (tmp_path / "token").write_text(token_of("reader"))
    url = f"http://127.0.0.1:{guarded.port}"
    for options, remedy in (
        ({"subscribe": "t-1"}, "Give credentials: option tokenFile or tokenEnv"),
        ({"subscribe": "private", "tokenFile": str(tmp_path / "token")}, "private"),
    ):
        given = {"url": url, **options}
        work = stream(spark, tmp_path, **given) if is_stream else batch(spark, **given)
        assert says(message_of(work), "SourceFailed|UnknownTopic", remedy)
