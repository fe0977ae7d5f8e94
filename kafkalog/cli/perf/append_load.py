"""Append records as fast as the daemon takes them, or at a rate: one request after the other.

A request carries one batch, so the latency of a record is that of its batch, from the moment when
its first record was there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.cli.perf.append_stats import AppendStats
from kafkalog.client import ClientError, ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.client import Client
    from kafkalog.client.records import Acks, CodecName
    from kafkalog.env.clock import Clock

BATCH_BYTES = 16_384  # Kafka's batch.size
_LINGERS_A_SECOND = 100  # a slow rate fills batches for at most 10 ms
_NS_PER_MS = 1_000_000
_LETTERS = bytes(ord("A") + number % 26 for number in range(256))


@dataclass(frozen=True, slots=True)
class AppendLoad:
    """What to append. ``records_per_second`` None: as fast as it goes. ``payload`` by number."""

    topic: str
    record_count: int
    payload: Callable[[int], bytes]
    records_per_second: float | None = None
    batch_bytes: int = BATCH_BYTES
    acks: Acks | None = None
    codec: CodecName = "none"

    def run(
        self,
        client: Client,
        clock: Clock,
        tell: Callable[[str], None],
        on_failure: Callable[[ClientError, int], None],
    ) -> AppendStats:
        """``tell`` gets the line of each window, ``on_failure`` how many were not appended.

        ClientError as far as ``on_failure`` raises it.
        """
        start_ns = clock.monotonic_ns()
        stats = AppendStats(self.record_count, start_ns // _NS_PER_MS)
        made = 0
        while made < self.record_count:
            began_ms = clock.monotonic_ns() // _NS_PER_MS
            values = self._batch(made)
            made += len(values)
            try:
                client.produce(
                    self.topic,
                    [ProducerRecord(value) for value in values],
                    acks=self.acks,
                    codec=self.codec,
                    batch_bytes=max(self.batch_bytes, 1),
                )
            except ClientError as error:
                on_failure(error, len(values))
            else:
                now_ms = clock.monotonic_ns() // _NS_PER_MS
                line = stats.add(len(values), sum(map(len, values)), now_ms - began_ms, now_ms)
                if line is not None:
                    tell(line)
            self._wait(clock, start_ns, made)
        return stats

    def _batch(self, first: int) -> list[bytes]:
        """The next values: a batch full, or what a slow rate allows; at least one."""
        most = self.record_count - first
        if self.records_per_second is not None:
            most = min(most, max(int(self.records_per_second / _LINGERS_A_SECOND), 1))
        values = [self.payload(first)]
        size = len(values[0])
        while len(values) < most and size < self.batch_bytes:
            values.append(self.payload(first + len(values)))
            size += len(values[-1])
        return values

    def _wait(self, clock: Clock, start_ns: int, made: int) -> None:
        if self.records_per_second is not None:
            due_ns = start_ns + int(made * 1e9 / self.records_per_second)
            ahead_ns = due_ns - clock.monotonic_ns()
            if ahead_ns > 0:
                clock.sleep(ahead_ns / 1e9)


def random_payloads(size_bytes: int, seed: int = 0) -> Callable[[int], bytes]:
    """Capital letters by chance, the same ones in every run."""
    chance = random.Random(seed)
    return lambda _: chance.randbytes(size_bytes).translate(_LETTERS)


def chosen_payloads(payloads: Sequence[bytes], seed: int = 0) -> Callable[[int], bytes]:
    """One of these by chance, the same ones in every run."""
    chance = random.Random(seed)
    return lambda _: chance.choice(payloads)


def counting_payloads() -> Callable[[int], bytes]:
    """The record's own number."""
    return lambda number: b"%d" % number
