"""`kafkalog segments dump`: the output of Kafka 4.1.0's DumpLogSegments, to the byte.

Owns the lines printed for `.log`, `.index`, `.timeindex`, `.txnindex` and `.snapshot` files. Never
changes a file and holds at most one batch in memory. Findings go to the error stream at the end,
the status stays 0, as Kafka's, but for `segments dump` of a file that is missing, or of none that
can be dumped. Source: `kafka.tools.DumpLogSegments`.

Differs from Kafka: a malformed record, index or position ends the tool with one line instead of a
stack trace, a name without a dot is ignored like every unknown kind, a missing `.index` beside a
dumped `.timeindex` is not created, and the message for a truncated snapshot says so (Kafka prints
"null").
"""

from __future__ import annotations

import errno
import os
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

import click

from kafkalog.cli.arguments import IntRange
from kafkalog.cli.main import read_fault
from kafkalog.cli.offline.dump_decoders import decode_offsets, decode_texts, java_text
from kafkalog.cli.offline.dump_report import (
    DumpedBatch,
    DumpedLog,
    DumpedOffsetIndex,
    DumpedTimeIndex,
    DumpReport,
    Problem,
)
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import CorruptIndex, KafkalogError
from kafkalog.format.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_of_file,
    sibling,
)
from kafkalog.format.disk.index_entries import ABORTED_VERSION, unpack_aborted_entries
from kafkalog.format.disk.producer_snapshot import ProducerSnapshotEntry, decode_snapshot
from kafkalog.format.integers import INT32_MAX, FormatError
from kafkalog.format.records.control_record import (
    ControlRecordType,
    read_control_type,
    read_end_transaction_marker,
)
from kafkalog.format.records.record_batch import (
    NO_TIMESTAMP,
    add_to_sequence,
    codec_of,
    is_control,
    is_crc_valid,
    is_transactional,
    timestamp_type_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.cli.connection import Command
    from kafkalog.cli.offline.dump_decoders import Decoder
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.format.records.record import Record


def record_line(
    record: Record,
    *,
    timestamp_label: str,
    is_control: bool,
    with_metadata: bool,
    with_contents: bool,
    decode: Decoder = decode_texts,
) -> str:
    """A record as --deep-iteration and --print-data-log print it; FormatError. Pure.

    with_contents shows no contents of control records. Without metadata and key Kafka 4.1 prints
    no bar before the payload. Source: `DumpLogSegments.dumpLog`.
    """
    parts: list[str] = []
    prefix = "| "
    if with_metadata:
        header_keys = ",".join(java_text(key) for key, _ in record.headers)
        parts.append(
            f"| offset: {record.offset} {timestamp_label}: {record.timestamp} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)} "
            f"sequence: {record.sequence} headerKeys: [{header_keys}]"
        )
        prefix = " "
        if is_control:
            parts.append(_control(record))
    if with_contents and not is_control:
        key, payload = decode(record)
        if key is not None:
            parts.append(f"{prefix}key: {key}")
        if payload is not None:
            parts.append(f" payload: {payload}")
    return "".join(parts)


def _control(record: Record) -> str:
    control_type = read_control_type(record.key)
    if control_type in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        marker = read_end_transaction_marker(record.key, record.value)
        return (
            f" endTxnMarker: {marker.control_type.name} "
            f"coordinatorEpoch: {marker.coordinator_epoch}"
        )
    assert record.key is not None  # read_control_type refused a record without one
    number = int.from_bytes(record.key[2:4], "big", signed=True)
    return f" controlType: {control_type.name}({number})"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


MAX_MESSAGE_SIZE_DEFAULT = 5 * 1024 * 1024
MAX_BYTES_DEFAULT = INT32_MAX
_KINDS = (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
TIMESTAMP_TYPE_NAMES = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What to print; names and defaults are Kafka's."""

    print_data_log: bool = False
    offsets_decoder: bool = False
    deep_iteration: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_message_size: int = MAX_MESSAGE_SIZE_DEFAULT
    max_bytes: int = MAX_BYTES_DEFAULT

    @property
    def prints_contents(self) -> bool:
        """Whether keys and values are printed, with a line for every record."""
        return self.print_data_log or self.offsets_decoder


def dump(files: Sequence[str], options: DumpOptions, out: TextIO, err: TextIO) -> None:
    """Print files in order, then the findings of all of them.

    Raises CorruptBatch, CorruptIndex or FormatError where Kafka's tool ends with a stack trace, and
    OSError for unreadable files; the findings are not printed then, as in Kafka.
    """
    dumper = _Dumper(SystemFilesystem(), options, out, err)
    for file in files:
        dumper.dump_file(_java_path(file))
    dumper.report.write(err)


def _flag(name: str, text: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", is_flag=True, help=text)


_OPTIONS = (
    _flag("print-data-log", "Print keys and values of records as UTF-8."),
    _flag("offsets-decoder", "Print the commits in __consumer_offsets, as JSON."),
    _flag("deep-iteration", "Print a line for every record."),
    _flag("skip-record-metadata", "Print keys and values only."),
    _flag("verify-index-only", "Verify index files; print no entries."),
    _flag("index-sanity-check", "Check index files as a start does."),
    click.option(
        "--max-message-size",
        type=IntRange(min=1),
        default=MAX_MESSAGE_SIZE_DEFAULT,
        show_default=True,
        help="Bytes to read at the position of an index entry.",
    ),
    click.option(
        "--max-bytes",
        type=IntRange(min=1, max=MAX_BYTES_DEFAULT),
        default=MAX_BYTES_DEFAULT,
        show_default=True,
        help="Read at most this many bytes of a log.",
    ),
)


def dump_options(command: Command) -> Command:
    """Add the options that this tool has by both of its names."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("dump")
@click.argument("paths", nargs=-1, metavar="FILE...")
@click.option("--files", hidden=True, help="Former spelling of FILE..., with commas between them.")
@dump_options
def segments_dump(paths: tuple[str, ...], files: str | None, **flags: bool | int) -> None:
    """Print segment files as Kafka's kafka-dump-log.sh does.

    Example: kafkalog segments dump data/orders-0/00000000000000000000.log --print-data-log
    """
    wanted = [*paths, *(files.split(",") if files is not None else ())]
    if not wanted:
        raise click.MissingParameter(
            ctx=click.get_current_context(), param_hint="'FILE...'", param_type="argument"
        )
    for path in wanted:
        if not os.path.exists(path):
            missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            raise read_fault(missing)
    if not any(_kind_of(path) in _KINDS for path in wanted):
        raise click.ClickException(_nothing_to_dump(wanted[0]))
    dump_or_fail(wanted, flags)


def _nothing_to_dump(path: str) -> str:
    if os.path.isdir(path):
        return f"{path} is a directory: name its {LOG_SUFFIX} files"
    return f"{path} is not a file of a segment ({', '.join(_KINDS)})"


def _kind_of(path: str) -> str:
    return "." + path.rpartition("/")[2].rpartition(".")[2]


def dump_or_fail(files: Sequence[str], flags: Mapping[str, bool | int]) -> None:
    """Print the files as the options ask; errors are click's."""
    # Values may hold any bytes; one that the terminal cannot encode must not end the dump.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    options = DumpOptions(**flags)  # type: ignore[arg-type]  # click has typed each option
    try:
        dump(files, options, sys.stdout, sys.stderr)
    except OSError as error:
        raise read_fault(error) from error
    except (KafkalogError, FormatError) as error:
        raise click.ClickException(str(error)) from error


@dataclass(slots=True)
class _Dumper:
    """One run of the tool over several files."""

    _filesystem: Filesystem
    _options: DumpOptions
    _out: TextIO
    _err: TextIO
    report: DumpReport = field(default_factory=DumpReport)

    def dump_file(self, path: str) -> None:
        """Print one file, as its suffix asks for."""
        self._print(f"Dumping {path}")
        dumps = (
            self._dump_log,
            self._dump_offset_index,
            self._dump_time_index,
            self._dump_snapshot,
            self._dump_transaction_index,
        )
        dump_kind = dict(zip(_KINDS, dumps, strict=True)).get(_kind_of(path))
        if dump_kind is None:
            self._err.write(f"Ignoring unknown file {path}\n")
        else:
            dump_kind(path)

    def _print(self, line: str) -> None:
        self._out.write(line + "\n")

    def _dump_log(self, path: str) -> None:
        name = path.rpartition("/")[2]
        self._print(f"Log starting offset: {offset_of_file(name)}")
        log = DumpedLog(self._filesystem, path, self._options.max_bytes)
        is_deep = self._options.deep_iteration or self._options.prints_contents
        valid_bytes = 0
        last_offset = -1
        for batch in log.batches():
            self._print(_batch_line(batch))
            if is_deep:
                last_offset = self._dump_records(batch, path, last_offset)
            valid_bytes += len(batch.data)
        log.close()
        if valid_bytes < log.size_bytes and self._options.max_bytes == MAX_BYTES_DEFAULT:
            rest = log.size_bytes - valid_bytes
            self._print(f"Found {rest} invalid bytes at the end of {name}")

    def _dump_records(self, batch: DumpedBatch, path: str, last_offset: int) -> int:
        """Print the records of a batch; return the offset of the last one seen so far."""
        label = TIMESTAMP_TYPE_NAMES[timestamp_type_of(batch.header.attributes)]
        control = is_control(batch.header.attributes)
        for record in batch.records():
            if last_offset not in (-1, record.offset - 1):
                self.report.add(
                    Problem.NON_CONSECUTIVE, _absolute(path), last_offset, record.offset
                )
            last_offset = record.offset
            line = record_line(
                record,
                timestamp_label=label,
                is_control=control,
                with_metadata=not self._options.skip_record_metadata,
                with_contents=self._options.prints_contents,
                decode=decode_offsets if self._options.offsets_decoder else decode_texts,
            )
            self._print(line)
        return last_offset

    def _dump_offset_index(self, path: str) -> None:
        base_offset = offset_of_file(path.rpartition("/")[2])
        log = DumpedLog(self._filesystem, sibling(path, LOG_SUFFIX))
        index = DumpedOffsetIndex(self._filesystem, path, base_offset)
        if index.entry_count == 0:
            self._print(f"{path} is empty.")
        elif self._options.index_sanity_check:
            index.check_sanity(_absolute(path))
            self._print(f"{path} passed sanity check.")
        else:
            for slot, (offset, position) in enumerate(index.entries()):
                batch = next(log.batches(position, self._options.max_message_size), None)
                if batch is None:
                    raise CorruptIndex(
                        f"No batch at position {position} of the log", file=path, position=slot * 8
                    )
                if batch.header.last_offset != offset:
                    self.report.add(
                        Problem.INDEX_MISMATCH, _absolute(path), offset, batch.header.last_offset
                    )
                if not self._options.verify_index_only:
                    self._print(f"offset: {offset} position: {position}")
        log.close()

    def _dump_time_index(self, path: str) -> None:
        base_offset = offset_of_file(path.rpartition("/")[2])
        log = DumpedLog(self._filesystem, sibling(path, LOG_SUFFIX))
        index_path = sibling(path, OFFSET_INDEX_SUFFIX)
        index = DumpedOffsetIndex(self._filesystem, index_path, base_offset)
        time_index = DumpedTimeIndex(self._filesystem, path, base_offset)
        if self._options.index_sanity_check:
            time_index.check_sanity(_absolute(path))
            self._print(f"{path} passed sanity check.")
        else:
            previous = NO_TIMESTAMP
            for timestamp, offset in time_index.entries():
                self._check_time_entry(
                    log, index.lookup(offset), path, (timestamp, offset), previous
                )
                if not self._options.verify_index_only:
                    self._print(f"timestamp: {timestamp} offset: {offset}")
                previous = timestamp
        log.close()

    def _check_time_entry(
        self, log: DumpedLog, position: int, path: str, entry: tuple[int, int], previous: int
    ) -> None:
        """Compare one time index entry with the batch that it names."""
        timestamp, offset = entry
        batch = next((b for b in log.batches(position) if b.header.last_offset >= offset), None)
        if batch is None or batch.header.last_offset != offset:
            found = -1 if batch is None else batch.header.last_offset
            self.report.add(Problem.OFFSET_NOT_FOUND, _absolute(path), offset, found)
            return
        log_timestamp = max([NO_TIMESTAMP, *(record.timestamp for record in batch.records())])
        if log_timestamp != timestamp:
            self.report.add(Problem.TIME_MISMATCH, _absolute(path), timestamp, log_timestamp)
        if previous >= timestamp:
            self.report.add(Problem.OUT_OF_ORDER_TIMESTAMP, _absolute(path), timestamp, previous)

    def _dump_snapshot(self, path: str) -> None:
        try:
            entries = decode_snapshot(self._filesystem.read_file(path))
        except FormatError as error:
            self._err.write(f"{error.reason}\n")
            return
        for entry in entries:
            self._print(_producer_line(entry))

    def _dump_transaction_index(self, path: str) -> None:
        entries = unpack_aborted_entries(self._filesystem.read_file(path))
        for producer_id, first, last, stable in entries.tolist():
            self._print(
                f"version: {ABORTED_VERSION} producerId: {producer_id} firstOffset: {first} "
                f"lastOffset: {last} lastStableOffset: {stable}"
            )


def _batch_line(batch: DumpedBatch) -> str:
    header = batch.header
    try:
        codec = codec_of(header.attributes)
    except FormatError as error:
        raise batch.corrupt(error.reason) from error
    label = TIMESTAMP_TYPE_NAMES[timestamp_type_of(header.attributes)]
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
        f"count: {header.record_count} baseSequence: {header.base_sequence} "
        f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {str(is_transactional(header.attributes)).lower()} "
        f"isControl: {str(is_control(header.attributes)).lower()} "
        f"deleteHorizonMs: {_optional_long(header.delete_horizon_ms)} "
        f"position: {batch.position} {label}: {header.max_timestamp} size: {header.size_bytes} "
        f"magic: {header.magic} compresscodec: {codec.name.lower()} crc: {header.crc} "
        f"isvalid: {str(is_crc_valid(batch.data)).lower()}"
    )


def _producer_line(entry: ProducerSnapshotEntry) -> str:
    first_offset = entry.current_txn_first_offset
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional_long(first_offset if first_offset >= 0 else None)} "
        f"lastTimestamp: {entry.last_timestamp_ms} "
    )
    if entry.last_offset < 0:
        return line  # Kafka 4.1 leaves the space at the end
    return (
        f"{line}firstSequence: {add_to_sequence(entry.last_sequence, -entry.offset_delta)} "
        f"lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
        f"offsetDelta: {entry.offset_delta} timestamp: {entry.last_timestamp_ms}"
    )


def _optional_long(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _java_path(path: str) -> str:
    """As java.io.File keeps it: without doubled slashes and without one at the end."""
    single = re.sub(r"/{2,}", "/", path)
    return single if single == "/" else single.removesuffix("/")


def _absolute(path: str) -> str:
    """As File.getAbsolutePath: dots stay."""
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"
