"""Kafka's own torture of compaction, over HTTP: many versions of each key while a daemon cleans.

The shape is that of Kafka's LogCompactionTester: every tenth record deletes its key, ten versions a
key on the average, in random order. What a consumer reads in the end is held against a dictionary.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.integration.http_world import append, batch_of, read_batches, until
from tests.partition_world import records_of

if TYPE_CHECKING:
    from kafkalog.format.records.record_batch import Codec
    from tests.integration.daemon import Daemon

SETTINGS = {
    "log_cleaner_backoff_ms": "20",
    "log_cleaner_threads": "2",
    "log_cleaner_dedupe_buffer_size": str(8 << 20),
    "log_retention_check_interval_ms": "100",
    "log_initial_task_delay_ms": "0",
}
TOPIC, RETAINED = "tortured", "retained"
VERSIONS = 10
BATCH_RECORDS = 500


class Torture:
    """One topic in two policies at once, and one beside it that retention eats."""

    def __init__(self, daemon: Daemon, codec: Codec, record_count: int, seed: int) -> None:
        self._daemon = daemon
        self._codec = codec
        self._record_count = record_count
        self._chance = random.Random(seed)
        self.last: dict[bytes, bytes | None] = {}

    def produce(self) -> None:
        """All records; every second batch also where retention deletes."""
        daemon = self._daemon
        segment = str(max(self._record_count * 2, 20_000))
        daemon.create_topic(
            TOPIC,
            1,
            cleanup_policy="compact,delete",
            retention_ms="-1",
            internal_segment_bytes=segment,
            min_cleanable_dirty_ratio="0.1",
            delete_retention_ms="50",
            file_delete_delay_ms="100",
        )
        daemon.create_topic(RETAINED, 1, internal_segment_bytes="50000", retention_bytes="20000")
        keys = self._record_count // VERSIONS
        for start in range(0, self._record_count, BATCH_RECORDS):
            batch_keys, values = list[bytes](), list[bytes | None]()
            for number in range(start, min(start + BATCH_RECORDS, self._record_count)):
                key = b"key-%d" % self._chance.randrange(keys)
                is_deletion = self._chance.random() < 0.1
                value = None if is_deletion else b"version-%d-of-%s" % (number, key)
                batch_keys.append(key)
                values.append(value)
                self.last[key] = value
            data = batch_of(*values, keys=batch_keys, codec=self._codec)
            assert append(daemon, TOPIC, data).status == 200
            if not start // BATCH_RECORDS % 2:
                assert append(daemon, RETAINED, data).status == 200

    def removed_so_far(self) -> int:
        """Superseded records that cleans have removed."""
        name = f'kafkalog_cleaner_records_removed_total{{reason="superseded",topic="{TOPIC}"}}'
        for line in self._daemon.request("GET", "/metrics").body.decode().splitlines():
            if line.startswith(name):
                return int(float(line.rsplit(" ", 1)[1]))
        return 0

    def wait_until_counted(self, superseded: int) -> None:
        """Until cleans have counted more than so many superseded records.

        A thread lets go of a log, writes its checkpoint and counts then: another one may have
        cleaned the log meanwhile.
        """
        until(lambda: self.removed_so_far() > superseded, "never counted", seconds=60)

    def wait_until_retained(self) -> None:
        """Until retention has moved the start of the topic that it eats; its task is periodic."""

        def is_retained() -> bool:
            path = f"/topics/{RETAINED}/partitions/0/offsets"
            return bool(self._daemon.request("GET", path).json["beginning_offset"] > 0)

        until(is_retained, "retention never ran", seconds=60, pace_seconds=0.02)

    def clean(self) -> None:
        """One more clean of what is left, by order."""
        path = f"/v1/topics/{TOPIC}/partitions/0/log:clean"

        def is_done() -> bool:
            answer = self._daemon.request("POST", path, {}, timeout=120)
            assert answer.status == 200 or answer.json["error_code"] == 40910, answer.body
            return answer.status == 200  # else a thread has it

        until(is_done, "never free", seconds=60, pace_seconds=0.02)

    def read(self) -> list[tuple[int, bytes, bytes | None]]:
        """What a consumer gets, from the start to the high watermark."""
        found: list[tuple[int, bytes, bytes | None]] = []
        offset = 0
        while True:
            answer = read_batches(self._daemon, TOPIC, offset, "&max_bytes=8000000")
            assert answer.status in (200, 204), answer.body
            for record in records_of(answer.body):
                if record.offset >= offset:
                    assert record.key is not None
                    value = None if record.value is None else bytes(record.value)
                    found.append((record.offset, bytes(record.key), value))
            following = int(answer.headers["Kafka-Next-Offset"])
            if following == offset:
                return found
            offset = following

    def check(self, found: list[tuple[int, bytes, bytes | None]]) -> None:
        """The last record of each key is what was produced last, or its deletion has been."""
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        left = {key: value for _, key, value in found}
        for key, value in self.last.items():
            assert left.get(key) == value, key
        assert left.keys() <= self.last.keys()
