"""Goal: what tasks of the Spark sink write is in the logs once, or they fail; of all attempts of a
batch one set is shown, whoever dies or repeats.
Method: Arrow batches as Spark hands them over, a real daemon, a proxy that cuts answers.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kafkalog.client import Client
from kafkalog.format.records.record_batch import read_header
from kafkalog.spark.sink.delivery import SinkFailed
from kafkalog.spark.sink.exactly_once import (
    Attempted,
    SinkBatch,
    abandon_batch,
    abort_batch,
    commit_batch,
    write_exactly_once,
)
from kafkalog.spark.sink.options import sink_options
from kafkalog.spark.sink.write import close_connections, write_at_least_once
from tests.integration.client_world import CuttingProxy
from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kafkalog.client import ConsumerRecord
    from kafkalog.spark.sink.options import SinkOptions


PAIR = pa.struct([("key", pa.utf8()), ("value", pa.binary())])


@pytest.fixture(autouse=True)
def _no_connection_outlasts_its_test() -> Iterator[None]:
    yield
    close_connections()


def url_of(daemon: Daemon) -> str:
    return f"http://127.0.0.1:{daemon.port}"


def write(url: str, batches: list[pa.RecordBatch], **options: str) -> tuple[tuple[str, int], ...]:
    """One task with these options; every column of the first batch is written."""
    checked = sink_options({"url": url, **options})
    return write_at_least_once(batches, checked, batches[0].schema.names)


def read_back(daemon: Daemon, topic: str, partition: int) -> list[ConsumerRecord]:
    with Client(url_of(daemon)) as client:
        return list(client.tail(topic, partition, start="earliest", is_endless=False))


def test_every_column_arrives(daemon: Daemon) -> None:
    """Two topics by a column, partitions by column and key, headers, nulls, times."""
    daemon.create_topic("one", partitions=2, retention_ms="-1")
    daemon.create_topic("two", partitions=1, retention_ms="-1")
    rows = pa.record_batch(
        {
            "topic": pa.array(["one", "two", "one", "one"]),
            "key": pa.array([b"k1", None, b"k1", None]),
            "value": pa.array(["a", None, "c", "d"]),
            "headers": pa.array(
                [[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], None, [], None],
                pa.list_(PAIR),
            ),
            "partition": pa.array([None, None, None, 0], pa.int32()),
            "timestamp": pa.array([1_500, 2_000_000, 0, 3_999], pa.timestamp("us", "UTC")),
        }
    )
    written = write(url_of(daemon), [rows])
    (two,) = read_back(daemon, "two", 0)
    assert (two.key, two.value, two.timestamp_ms, two.headers) == (None, None, 2000, ())
    ones = [
        (each.partition, each.key, each.value, each.timestamp_ms, each.headers)
        for partition in (0, 1)
        for each in read_back(daemon, "one", partition)
    ]
    keyed = next(partition for partition, key, *_ in ones if key is not None)
    assert sorted(ones, key=lambda each: each[3]) == [
        (keyed, b"k1", b"c", 0, ()),
        (keyed, b"k1", b"a", 1, (("h", b"x"), ("h", None))),
        (0, None, b"d", 3, ()),
    ]
    assert written == tuple(sorted({("one", 0), ("one", keyed), ("two", 0)}))


def test_the_tasks_of_a_process_share_a_producer(daemon: Daemon) -> None:
    """A cluster has as many as it has workers; after a failed task a new one is drawn."""
    daemon.create_topic("shared", partitions=1)
    rows = pa.record_batch({"value": pa.array(["a", "b", "c"])})
    for topic in ("shared", "shared", "no where", "shared"):
        if topic == "no where":
            with pytest.raises(SinkFailed, match="Topic no where cannot be written to"):
                write(url_of(daemon), [rows], topic=topic)
        else:
            write(url_of(daemon), [rows], topic=topic)
    producers, sequences, position = [], [], 0
    with Client(url_of(daemon)) as client:
        data = client.fetch_batches("shared", 0, 0).data
    while position < len(data):
        header = read_header(data, position)
        producers.append(header.producer_id)
        sequences.append(header.base_sequence)
        position += header.size_bytes
    assert sequences == [0, 3, 0]
    assert producers[0] == producers[1] != producers[2]


@pytest.mark.slow
def test_a_lost_answer_appends_nothing_twice(daemon: Daemon) -> None:
    """Every third answer to an append is cut off; each record is in the log once."""
    daemon.create_topic("cut", partitions=2)
    appends = 0

    def cut(head: bytes) -> str:
        nonlocal appends
        if b"/batches" not in head:
            return ""
        appends += 1
        return ("after", "", "half", "before")[appends % 4] if appends < 16 else ""

    rows = pa.record_batch(
        {
            "key": pa.array([str(number) for number in range(3000)]),
            "value": pa.array([str(number) for number in range(3000)]),
        }
    )
    with CuttingProxy(daemon.port, cut) as proxy:
        write(proxy.url, [rows], topic="cut", batchBytes="4k")
        assert len(proxy.cuts) == 11
    found = [each.value for number in (0, 1) for each in read_back(daemon, "cut", number)]
    assert sorted(found, key=lambda value: int(value or b"")) == [
        str(number).encode() for number in range(3000)
    ]


@pytest.mark.gate
def test_a_daemon_that_is_away_is_waited_for_and_then_named() -> None:
    rows = pa.record_batch({"value": pa.array(["a"])})
    began = time.monotonic()
    with pytest.raises(SinkFailed) as caught:
        write("http://127.0.0.1:9", [rows], topic="t", deliveryTimeout="300ms")
    assert time.monotonic() - began < 20
    assert "No answer from http://127.0.0.1:9" in caught.value.message
    assert "Check that the daemon of option url runs" in caught.value.message


def test_what_the_daemon_refuses_fails_the_task(daemon: Daemon) -> None:
    daemon.create_topic("compacted", cleanup_policy="compact")
    daemon.create_topic("narrow", max_message_bytes="2000")
    rows = pa.record_batch({"value": pa.array(["x" * 100] * 40)})
    for topic, message in (
        ("compacted", "could not be appended to compacted-0"),
        ("narrow", "Decrease option batchBytes"),
    ):
        with pytest.raises(SinkFailed) as caught:
            write(url_of(daemon), [rows], topic=topic)
        assert message in caught.value.message
    write(url_of(daemon), [rows], topic="narrow", batchBytes="1900")
    assert len(read_back(daemon, "narrow", 0)) == 40


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_topic_is_made_as_a_produce_makes_it(daemon: Daemon, *, exactly_once: bool) -> None:
    """With auto.create.topics.enable, with num.partitions and before the first record."""
    topic = f"made-{exactly_once}"
    options = {"url": url_of(daemon), "topic": topic, "exactlyOnce": str(exactly_once)}
    part = pa.record_batch({"value": pa.array(["a", "b"])})
    if exactly_once:
        checked = sink_options(options)
        done = write_exactly_once([part], checked, ["value"], SinkBatch("makes", 0), 0, 0)
        commit_batch(checked, [done])
    else:
        write(options.pop("url"), [part], **options)
    assert [each.value for each in read_back(daemon, topic, 0)] == [b"a", b"b"]


def test_a_topic_is_not_made_where_a_produce_makes_none(tmp_path: Path) -> None:
    with Daemon(tmp_path, auto_create_topics_enable="false") as strict:
        with pytest.raises(SinkFailed, match="Create the topic first"):
            write(url_of(strict), [pa.record_batch({"value": pa.array(["a"])})], topic="missing")
        assert strict.request("GET", "/topics").json == []


class World:
    """A topic of two partitions, and a query that writes to it."""

    def __init__(self, daemon: Daemon, topic: str) -> None:
        self._daemon = daemon
        self._topic = topic
        self.options = self.options_of(f"http://127.0.0.1:{daemon.port}")
        daemon.create_topic(topic, partitions=2)

    def options_of(self, url: str) -> SinkOptions:
        """The same through another address."""
        return sink_options({"url": url, "topic": self._topic, "exactlyOnce": "true"})

    def task(
        self,
        batch_id: int,
        values: str,
        part: int = 0,
        attempt: int = 0,
        query: str = "",
        run: str | None = None,
    ) -> Attempted:
        """One task that writes each character."""
        return write_exactly_once(
            rows(values),
            self.options,
            ["key", "value"],
            SinkBatch(query or self._topic, batch_id, run),
            part,
            attempt,
        )

    def commit(self, *attempted: Attempted) -> None:
        commit_batch(self.options, attempted)

    def shown(self) -> str:
        """All that readers of committed records see, sorted."""
        with Client(f"http://127.0.0.1:{self._daemon.port}") as client:
            values = [
                record.value or b""
                for partition in (0, 1)
                for record in client.fetch(
                    self._topic, partition, 0, isolation="read_committed"
                ).records
            ]
        return b"".join(sorted(values)).decode()


def rows(values: str) -> Iterable[pa.RecordBatch]:
    """A batch of Arrow for each character, with itself as key."""
    return (
        pa.record_batch({"key": pa.array([each]), "value": pa.array([each])}) for each in values
    )


def test_nothing_is_shown_before_the_commit_and_all_after(daemon: Daemon) -> None:
    """Of several tasks; one had nothing to write."""
    world = World(daemon, "commit")
    ended = [world.task(0, "abc"), world.task(0, "de", part=1), world.task(0, "", part=2)]
    assert world.shown() == ""
    world.commit(*ended)
    assert world.shown() == "abcde"


def test_a_task_tells_its_last_sequences(daemon: Daemon) -> None:
    """The commit shows all of them or nothing: here the task says that it wrote one more."""
    world = World(daemon, "sequences")
    ended = world.task(0, "abc")
    winner = ended.winner
    assert winner is not None
    last_sequences = winner.last_sequences
    assert list(last_sequences) == list(winner.partitions)
    assert sum(last_sequences.values()) + len(last_sequences) == 3
    one_more = {at: sequence + 1 for at, sequence in last_sequences.items()}
    with pytest.raises(SinkFailed, match="nothing was committed"):
        world.commit(replace(ended, winner=replace(winner, last_sequences=one_more)))
    assert world.shown() == ""
    world.commit(ended)
    assert world.shown() == "abc"


def test_a_batch_that_is_committed_is_not_written_again(daemon: Daemon) -> None:
    """The driver starts again before it noted its commit: its tasks read on and write nothing."""
    world = World(daemon, "again")
    ended = world.task(0, "ab")
    world.commit(ended)
    source = iter(rows("ab"))
    repeated = write_exactly_once(
        source, world.options, ["key", "value"], SinkBatch("again", 0), 0, 0
    )
    assert repeated == Attempted(SinkBatch("again", 0))
    assert next(source, None) is None
    world.commit(repeated)
    world.commit(ended)
    abort_batch(world.options, [ended])
    assert world.shown() == "ab"


def test_a_batch_that_is_given_up_leaves_nothing_open(daemon: Daemon) -> None:
    """A task of a failed job that still runs begins late: it is told that the batch is over."""
    world = World(daemon, "given-up")
    world.task(0, "ab")
    abandon_batch(world.options, SinkBatch("given-up", 0))
    assert world.task(0, "cd", part=1).winner is None
    world.commit(world.task(0, "e", query="another"))
    assert world.shown() == "e"


def test_a_driver_that_starts_again_leaves_nothing_open(daemon: Daemon) -> None:
    """A later attempt of its former life is ended by the first begin of the next, and refused."""
    world = World(daemon, "crash-loop")
    world.task(0, "ab", attempt=1, run="one")
    ended = world.task(0, "cd", part=1, run="two")
    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        described = client.describe_sink("crash-loop")
    assert described["open_producers"] == 1
    with pytest.raises(SinkFailed, match="Another run of query crash-loop"):
        world.task(0, "ab", run="one")
    world.commit(ended, world.task(0, "ab", run="two"))
    assert world.shown() == "abcd"


def test_a_save_whose_answer_was_lost_is_not_called_a_failure(daemon: Daemon) -> None:
    """Spark gives the job up behind its commit: whoever saves again is told not to."""
    world = World(daemon, "answered-late")
    world.commit(world.task(0, "ab"))
    with pytest.raises(SinkFailed, match="Do not write it again"):
        abandon_batch(world.options, SinkBatch("answered-late", 0))
    assert world.shown() == "ab"


def test_what_was_aborted_is_not_called_taken_over(daemon: Daemon) -> None:
    """The driver names what is not open any more; the words are those of the reason."""
    world = World(daemon, "timed-out")
    ended = world.task(0, "ab")
    abort_batch(world.options, [ended])
    with pytest.raises(SinkFailed, match=r"it was aborted\. .* transaction\.max\.timeout\.ms"):
        world.commit(ended)
    assert world.shown() == ""


def test_lost_answers_change_nothing(daemon: Daemon) -> None:
    """Begins, appends and commits whose answers are cut off are asked again."""
    world = World(daemon, "cut-off")
    turns = iter([""] + ["after", "half", "before", ""] * 100)

    def cut(head: bytes) -> str:
        return next(turns) if head.startswith(b"POST") else ""

    with CuttingProxy(daemon.port, cut) as proxy:
        world.options = world.options_of(proxy.url)
        for batch_id, values in enumerate(("ab", "cd", "ef")):
            world.commit(world.task(batch_id, values))
        close_connections()
        assert len(proxy.cuts) > 9
    assert world.shown() == "abcdef"


@pytest.mark.slow
def test_a_daemon_that_is_killed_keeps_what_was_begun(tmp_path: Path) -> None:
    """kill -9 between two tasks, between the last task and the commit, and behind the commit."""
    with Daemon(tmp_path) as daemon:
        world = World(daemon, "killed")
        first = world.task(0, "ab")
        daemon.kill()
        daemon.start()
        second = world.task(0, "cd", part=1)
        daemon.kill()
        daemon.start()
        world.commit(first, second)
        daemon.kill()
        daemon.start()
        world.commit(first, second)
        assert world.shown() == "abcd"
        world.commit(world.task(1, "e"))
        assert world.shown() == "abcde"
