"""``kafkalog offline scan DIR``: the records of a partition directory as JSON lines.

Fields, order and form are those in which the oracle kit prints the records of Kafka's consumer, so
that the two can be compared byte by byte. CRCs are checked; nothing is written. With --committed,
the records that a read_committed consumer gets; which transactions were aborted or are open is
known from the markers in the log itself.
"""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING

import click

from kafkalog.cli.arguments import check_partition_directory
from kafkalog.cli.main import read_fault
from kafkalog.cli.offline.dump_decoders import java_text
from kafkalog.cli.offline.dump_report import DumpedBatch, DumpedLog
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import CorruptBatch, KafkalogError
from kafkalog.format.disk.file_names import LOG_SUFFIX
from kafkalog.format.integers import FormatError
from kafkalog.format.records.control_record import ControlRecordType, read_control_type
from kafkalog.format.records.record_batch import (
    TimestampType,
    is_control,
    is_crc_valid,
    is_transactional,
    timestamp_type_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.env.filesystem import Filesystem
    from kafkalog.format.records.record import Record
    from kafkalog.format.records.record_batch import BatchHeader

_TIMESTAMP_NAMES = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
# Jackson's escapes, which differ from Python's in the case of the hex digits.
_ESCAPES = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(character): "\\" + letter
    for character, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)
}


def batches_of(filesystem: Filesystem, directory: str) -> Iterator[DumpedBatch]:
    """Every batch of the directory's segments in order; ends at a torn tail of the last one.

    Raises CorruptBatch where a CRC is wrong or no batch can begin, also at the end of an earlier
    segment.
    """
    names = sorted(name for name in filesystem.list_dir(directory) if name.endswith(LOG_SUFFIX))
    for name in names:
        end = 0
        log = DumpedLog(filesystem, f"{directory}/{name}")
        try:
            for batch in log.batches():
                if not is_crc_valid(batch.data):
                    raise batch.corrupt("A batch fails its CRC")
                yield batch
                end = batch.position + len(batch.data)
            if end < log.size_bytes and name != names[-1]:
                raise CorruptBatch("No whole record batch", file=log.path, position=end)
        finally:
            log.close()


class Transactions:
    """What the markers of a log say: the aborted ranges, and the last stable offset."""

    def __init__(self, batches: Iterator[DumpedBatch]) -> None:
        open_since: dict[int, int] = {}
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        self.last_stable_offset = 0
        for batch in batches:
            header = batch.header
            self.last_stable_offset = header.last_offset + 1
            if not is_transactional(header.attributes):
                continue
            if is_control(header.attributes):
                first = open_since.pop(header.producer_id, None)
                if first is not None and _is_abort(batch):
                    ranges = self._aborted.setdefault(header.producer_id, [])
                    ranges.append((first, header.last_offset))
            elif header.record_count:
                # A batch emptied by compaction belongs to a transaction that ended long ago.
                open_since.setdefault(header.producer_id, header.base_offset)
        if open_since:
            self.last_stable_offset = min(open_since.values())

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a read_committed consumer skips this data batch."""
        if not is_transactional(header.attributes):
            return False
        return any(
            first <= header.base_offset <= last
            for first, last in self._aborted.get(header.producer_id, ())
        )


def _is_abort(batch: DumpedBatch) -> bool:
    """Whether this control batch is an abort marker; one emptied by compaction is not."""
    marker = next(batch.records(), None)
    try:
        return marker is not None and read_control_type(marker.key) is ControlRecordType.ABORT
    except FormatError as error:
        raise batch.corrupt(error.reason) from error


def record_line(record: Record, timestamp_type: str) -> str:
    """One record as the kit's consumer prints it."""
    headers = ",".join(
        f'["{java_text(name).translate(_ESCAPES)}",{_base64(value)}]'
        for name, value in record.headers
    )
    return (
        f'{{"offset":{record.offset},"timestamp":{record.timestamp},'
        f'"timestampType":"{timestamp_type}","key":{_base64(record.key)},'
        f'"value":{_base64(record.value)},"headers":[{headers}]}}\n'
    )


def _base64(data: bytes | None) -> str:
    return "null" if data is None else f'"{base64.b64encode(data).decode()}"'


def scan_lines(
    filesystem: Filesystem, directory: str, from_offset: int, *, committed: bool
) -> Iterator[str]:
    """Lines of the data records from an offset on; control records are left out.

    Raises CorruptBatch and OSError.
    """
    transactions = Transactions(batches_of(filesystem, directory)) if committed else None
    for batch in batches_of(filesystem, directory):
        header = batch.header
        if is_control(header.attributes) or header.last_offset < from_offset:
            continue
        if transactions is not None:
            if header.base_offset >= transactions.last_stable_offset:
                return
            if transactions.is_aborted(header):
                continue
        timestamp_type = _TIMESTAMP_NAMES[timestamp_type_of(header.attributes)]
        for record in batch.records():
            if record.offset >= from_offset:
                yield record_line(record, timestamp_type)


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--from", "from_offset", type=int, default=0, metavar="N", help="Records from this offset on."
)
@click.option(
    "--committed", is_flag=True, help="Leave out records of aborted and open transactions."
)
def scan(directory: str, from_offset: int, committed: bool) -> None:
    """Print the records of a partition directory as JSON lines; keys and values in base64.

    Ends with an error at the first damaged batch, after the records before it. The directory must
    not be written meanwhile.

    Example: kafkalog offline scan ./data/orders-0 --from 100
    """
    check_partition_directory(directory)
    out = sys.stdout.buffer
    try:
        for line in scan_lines(SystemFilesystem(), directory, from_offset, committed=committed):
            out.write(line.encode())
    except KafkalogError as error:
        out.flush()
        raise click.ClickException(error.message) from error
    except OSError as error:
        raise read_fault(error) from error
    out.flush()
