"""Rounds of the cleaner over made directories, by Kafka in one JVM, by us and by the plain twin.

Owns the questions (`CleaningCase`: a function of its seed), the JVM run (`CompactMany.java`), and
what counts as the same result.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kafkalog.cleaner.offline import CompactOptions, clean_directory
from kafkalog.env.system_filesystem import copy_files
from kafkalog.errors import KafkalogError, LogCleaningAborted
from kafkalog.format.disk.index_entries import unpack_aborted_entries
from kafkalog.format.disk.producer_snapshot import decode_snapshot
from kafkalog.format.records.record import read_records
from kafkalog.format.records.record_batch import Codec, read_header
from kafkalog.log.log_config import LogConfig
from kafkalog.settings.dynamic_configs import parse_topic_config
from tests.fleet_world import plant_partition
from tests.naive.cleaner import PlainAborted, PlainCleaner, PlainSegment, split_batches
from tests.naive.cleaning_logs import TIME, make_log
from tests.oracle.one_jvm import one_jvm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.naive.cleaner import PlainClean
    from tests.naive.cleaning_logs import LogMaker
    from tests.oracle.kafka import Kafka

NAME = "made-0"
DAY = 86_400_000
OTHER_CODECS = (Codec.SNAPPY, Codec.ZSTD)  # whose libraries write other bytes than Java's
NO_OFFSET, WHERE_THE_LAST_ENDED = -1, -2


@dataclass(frozen=True)
class Round:
    """One clean. ``first_dirty``: an offset, none (-1), or where the round before ended (-2)."""

    now_ms: int
    high_watermark: int = -1
    first_dirty: int = NO_OFFSET
    roll: bool = False
    unclean: bool = False


@dataclass
class CleaningCase:
    """A directory and what is done to it, all by its seed."""

    seed: int
    home: Path
    configs: dict[str, str] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    features: set[str] = field(default_factory=set)
    log_start: int = 0
    map_bytes: int = 24 * 100
    io_buffer: int = 4096
    load_factor: float = 0.9

    @property
    def source(self) -> Path:
        return self.home / "source" / NAME

    def copy_of(self, side: str, number: int) -> Path:
        """The result of a round of one side; number 0 is the source."""
        return self.home / side / str(number) / NAME if number else self.source

    def question(self) -> dict[str, Any]:
        return {
            "rounds": [
                {
                    "source": str(self.copy_of("kafka", number)),
                    "out": str(self.copy_of("kafka", number + 1)),
                    "now": each.now_ms,
                    "logStart": self.log_start,
                    "hw": each.high_watermark,
                    "firstDirty": each.first_dirty,
                    "roll": each.roll,
                    "unclean": each.unclean,
                    "mapBytes": self.map_bytes,
                    "ioBuffer": self.io_buffer,
                    "loadFactor": self.load_factor,
                    "set": self.configs,
                }
                for number, each in enumerate(self.rounds)
            ]
        }


def make_case(seed: int, home: Path) -> CleaningCase:
    """The case of a seed, its source written."""
    chance = random.Random(seed)
    made = make_log(chance)
    case = CleaningCase(seed, home, features=set(made.features))
    case.configs = {
        "cleanup.policy": chance.choice(("compact", "compact,delete")),
        "internal.segment.bytes": str(chance.choice((300, 2_000, 20_000, 10**6))),
        "index.interval.bytes": str(chance.choice((0, 100, 1_000, 4_096))),
        "segment.index.bytes": str(chance.choice((12 * 70, 12 * 500))),
        "delete.retention.ms": str(chance.choice((0, 10_000, 30_000))),
    }
    case.map_bytes = 24 * chance.choice((2, 3, 7, 20, 200))
    case.load_factor = chance.choice((0.9, 0.9, 0.6, 1.0))
    case.io_buffer = chance.choice((200, 1_000, 65_536))
    if chance.random() < 0.15:
        case.configs["min.compaction.lag.ms"] = str(chance.choice((4_000, 12_000)))
        case.features.add("min compaction lag")
    if chance.random() < 0.25:
        case.log_start = _log_start(chance, case, made)
        case.features.add("log start inside")
    case.rounds = _rounds(chance, case, made)
    plant_partition(case.source, made.segments, parse_topic_config(case.configs, LogConfig()))
    return case


def _log_start(chance: random.Random, case: CleaningCase, made: LogMaker) -> int:
    """Any; with open transactions none in a gap, where Kafka's LSO lies behind ours."""
    if "open transactions" not in case.features:
        return chance.randrange(made.segments[0].base, made.offset)
    data = b"".join(b"".join(segment.batches) for segment in made.segments)
    header = chance.choice(split_batches(data)).header
    return chance.randint(header.base_offset, header.last_offset)


def _rounds(chance: random.Random, case: CleaningCase, made: LogMaker) -> list[Round]:
    """One to three clocks that go on, each round seeing more of the log."""
    start = made.segments[0].base
    count = chance.choice((1, 2, 3))
    if count > 1:
        case.features.add("several rounds")
    now_ms = TIME + chance.choice((10_000, 15_000, DAY + 10_000_000))
    if now_ms > TIME + DAY:
        case.features.add("expired producers")
    rounds = []
    for number in range(count):
        is_last = number + 1 == count
        least = start + (made.offset - start) * number // count
        watermark = -1 if is_last and chance.random() < 0.9 else chance.randint(least, made.offset)
        dirty = WHERE_THE_LAST_ENDED if number else NO_OFFSET
        if not number and chance.random() < 0.3:
            middle = (start + made.offset) // 2
            dirty = chance.choice((chance.randint(start, middle), middle, made.offset + 3))
            case.features.add("first dirty given")
        roll = not number and chance.random() < 0.7
        rounds.append(Round(now_ms, watermark, dirty, roll, unclean=chance.random() < 0.1))
        now_ms += chance.choice((0, 9_999, 10_000, 30_000, 100_000))
    return rounds


def clean_with_kafka(kafka: Kafka, home: Path, cases: Iterable[CleaningCase]) -> list[Any]:
    """Kafka's results of every round, in the order of the cases."""
    with one_jvm(kafka, home) as jvm:
        return jvm.answers("CompactMany", [case.question() for case in cases])


def clean_with_us(case: CleaningCase, number: int, before: int) -> dict[str, Any]:
    """Our result of a round, from the source that Kafka had; {"error": text} when that fails.

    ``before``: where the round before ended.
    """
    asked, target = case.rounds[number], case.copy_of("ours", number + 1)
    first_dirty = before if asked.first_dirty == WHERE_THE_LAST_ENDED else asked.first_dirty
    options = CompactOptions(
        now_ms=asked.now_ms,
        first_dirty=None if first_dirty < 0 else first_dirty,
        log_start=case.log_start,
        high_watermark=None if asked.high_watermark < 0 else asked.high_watermark,
        roll=asked.roll,
        unclean=asked.unclean,
        map_bytes=case.map_bytes,
        io_buffer_bytes=case.io_buffer,
        load_factor=case.load_factor,
    )
    copy_files(str(case.copy_of("kafka", number)), str(target))
    try:
        config = parse_topic_config(case.configs, LogConfig())
        return clean_directory(str(target), config, options)
    except (KafkalogError, LogCleaningAborted, OSError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def comparable(result: dict[str, Any], resized: set[int]) -> dict[str, Any]:
    """Without what cannot be equal.

    Mtimes of empty segments, which are compared as such; the recovery point, which another thread
    moves; a last stable offset below the log start; sizes and index entries of ``resized``
    segments, whose codec made other bytes.
    """
    left: dict[str, Any] = json.loads(json.dumps(result))
    for state in (left["before"], left["after"]):
        state.pop("recoveryPoint")
        # Inside of an open transaction Kafka takes the base of the batch at the log start.
        state["lastStableOffset"] = max(state["lastStableOffset"], state["logStartOffset"])
        for segment in state["segments"]:
            if not segment["bytes"]:
                segment["largestTimestamp"] = None
    if resized:
        left.pop("bytesWritten")
        left["after"].pop("size")
        for segment in left["after"]["segments"]:
            if segment["base"] in resized:
                segment["bytes"] = segment["indexEntries"] = segment["timeIndexEntries"] = None
        names = [f"{base:020d}{suffix}" for base in resized for suffix in RESIZED_SUFFIXES]
        for name in names:
            left["files"].pop(name)
    return left


RESIZED_SUFFIXES = (".log", ".index", ".timeindex")


def meaning(data: bytes) -> list[object]:
    """Batches of a .log: bytes, of those of OTHER_CODECS the header and the inflated records."""
    found: list[object] = []
    for batch in split_batches(data):
        if batch.header.attributes & 7 not in OTHER_CODECS or not batch.header.record_count:
            found.append(batch.data)
            continue
        header = read_header(batch.data)
        fields = [name for name in header._fields if name not in ("length", "crc")]
        inflated = read_records(batch.data, max_bytes=1 << 30).records
        found.append(([getattr(header, name) for name in fields], inflated))
    return found


def twin_of(case: CleaningCase, number: int, kafkas: dict[str, Any]) -> PlainClean:
    """What the plain twin makes of the source of a round; index sizes are those Kafka reports."""
    directory, round_ = case.copy_of("kafka", number), case.rounds[number]
    config = parse_topic_config(case.configs, LogConfig())
    segments, map_from = [], 0
    for state in kafkas["before"]["segments"]:
        path = directory / f"{state['base']:020d}.log"
        if not path.exists():  # the one that a roll has made
            segments.append(PlainSegment(state["base"], [], 0))
            continue
        if state["base"] <= kafkas["firstDirtyOffset"]:
            map_from = _indexed_floor(path, state["base"], kafkas["firstDirtyOffset"])
        segments.append(
            PlainSegment(
                state["base"],
                split_batches(path.read_bytes()),
                path.stat().st_mtime_ns // 1_000_000,
                aborted_in(path),
                state["indexEntries"] * 8,
                state["timeIndexEntries"] * 12,
            )
        )
    return PlainCleaner(
        segments[:-1],
        kafkas["firstDirtyOffset"],
        kafkas["firstUncleanableOffset"],
        round_.now_ms,
        int(kafkas["mapSlots"] * case.load_factor),
        config.delete_retention_ms,
        config.max_segment_bytes,
        config.segment_index_bytes,
        _last_records(directory, round_.now_ms),
        kafkas["before"]["logStartOffset"],
        map_from,
        segments[-1].aborted,
    ).run()


def aborted_in(log_file: Path) -> list[PlainAborted]:
    """Entries of the transaction index beside a .log."""
    index = log_file.with_suffix(".txnindex")
    table = unpack_aborted_entries(index.read_bytes() if index.exists() else b"")
    return [PlainAborted(*entry) for entry in table.tolist()]


def _indexed_floor(log_file: Path, base: int, offset: int) -> int:
    """Last offset of the batch that the offset index leads to; 0 when it leads to the first one."""
    data = log_file.with_suffix(".index").read_bytes()
    entries = [base + relative for relative, _ in struct.iter_unpack(">ii", data)]
    return max((each for each in entries if each <= offset), default=0)


def _last_records(directory: Path, now_ms: int) -> dict[int, tuple[int | None, int]]:
    """Last data offset and epoch of the producers that have not expired, of the newest snapshot."""
    newest = max(directory.glob("*.snapshot"), default=None)
    rows = [] if newest is None else decode_snapshot(newest.read_bytes())
    return {
        row.producer_id: (None if row.last_offset < 0 else row.last_offset, row.producer_epoch)
        for row in rows
        if row.current_txn_first_offset >= 0 or now_ms - row.last_timestamp_ms < DAY
    }


def features_of(case: CleaningCase, kafkas: list[dict[str, Any]]) -> set[str]:
    """What the case was made of, and what Kafka did to it; of the rounds that cleaned something."""
    found = set(case.features)
    for number, result in enumerate(kafkas):
        if "error" in result or "nothingToClean" in result or case.rounds[number].unclean:
            continue
        found |= twin_of(case, number, result).events
    return found


def describe(seed: int) -> None:
    """Print a case: its configs, its rounds and every batch of its source."""
    with TemporaryDirectory() as home:
        case = make_case(seed, Path(home))
        print(json.dumps(case.question(), indent=2))
        print("features:", ", ".join(sorted(case.features)))
        for path in sorted(case.source.glob("*.log")):
            print(path.name)
            for batch in split_batches(path.read_bytes()):
                header = batch.header
                print(
                    f"  {header.base_offset}..{header.last_offset}"
                    f" attributes {header.attributes:#04x} producer {header.producer_id}"
                    f" base timestamp {header.base_timestamp}"
                )
                for record in batch.records:
                    size = None if record.value is None else len(record.value)
                    print(f"    {record.offset} key {record.key!r} value bytes {size}")


if __name__ == "__main__":
    describe(int(sys.argv[1]))
