"""Topics at work: a producer that never rests, while the daemon rolls, cleans and retains.

Owns what was sent by offset, and which records no cleaning takes: what readers are held against.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from kafkalog.format.records.record_batch import Codec
from tests.integration.http_world import append, batch_of
from tests.integration.torture import SETTINGS

if TYPE_CHECKING:
    from types import TracebackType

    from tests.integration.daemon import Daemon

COMPACTED, RETAINED = "compacted", "retained"
TOPICS = (COMPACTED, RETAINED)
DAEMON_SETTINGS = {**SETTINGS, "replica_high_watermark_checkpoint_interval_ms": "50"}
_BATCH_RECORDS, _KEYS = 60, 2_000
_SEGMENT_BYTES = "40000"


def create_topics(daemon: Daemon) -> None:
    """One partition each, of tiny segments that go soon."""
    settings = {"internal_segment_bytes": _SEGMENT_BYTES, "file_delete_delay_ms": "20"}
    daemon.create_topic(
        COMPACTED,
        1,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.1",
        delete_retention_ms="50",
        **settings,
    )
    daemon.create_topic(RETAINED, 1, retention_bytes="150000", **settings)


class Producer(threading.Thread):
    """Sends random versions of keys to both topics, and remembers them by offset.

    record_count    of each topic, after which it ends by itself; None: when its block ends
    pause_seconds   between two batches

    ``with Producer(...)``: at work inside; behind it everything is sent, or its failure is raised.
    """

    def __init__(
        self, daemon: Daemon, record_count: int | None = None, pause_seconds: float = 0
    ) -> None:
        super().__init__()
        self._daemon = daemon
        self._record_count = record_count
        self._pause_seconds = pause_seconds
        self._is_over = threading.Event()
        self._chance = random.Random(7)
        self._failure: BaseException | None = None
        self.sent: dict[str, list[tuple[bytes, bytes | None]]] = defaultdict(list)

    def __enter__(self) -> Producer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._record_count is None or failure is not None:
            self._is_over.set()
        self.join()
        if self._failure is not None and failure is None:
            raise self._failure

    def run(self) -> None:
        try:
            while len(self.sent[COMPACTED]) != self._record_count:
                if self._is_over.wait(self._pause_seconds):
                    return
                self._send()
        except BaseException as failure:
            self._failure = failure
            raise

    def _send(self) -> None:
        keys = [b"key-%d" % self._chance.randrange(_KEYS) for _ in range(_BATCH_RECORDS)]
        values = [
            None if self._chance.random() < 0.1 else b"%s is %d" % (key, self._chance.randrange(99))
            for key in keys
        ]
        data = batch_of(*values, keys=keys, codec=self._chance.choice(list(Codec)))
        for topic in TOPICS:
            # Before the request: a reader may see them before their answer is here.
            self.sent[topic] += zip(keys, values, strict=True)
            assert append(self._daemon, topic, data).status == 200

    def kept_by_cleaning(self, end_offset: int) -> set[int]:
        """Offsets below an end that are the last of their key to this day, and no deletions."""
        sent = list(self.sent[COMPACTED])
        last = {key: offset for offset, (key, _) in enumerate(sent)}
        return {
            offset
            for offset in last.values()
            if offset < end_offset and sent[offset][1] is not None
        }
