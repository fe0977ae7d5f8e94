"""``kafkalog offline scan DIR``: the records of a partition directory as JSON lines, no server.

Same fields, order and form as Kafka's own consumer prints through the oracle kit, so that the two
can be compared byte by byte. CRCs are checked; nothing is written. With --committed, what a
read_committed consumer sees: the markers in the log itself say what was aborted and what is open.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING

import click

from kafkalog.cli.dumped_log import DumpedBatch, DumpedLog
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import CorruptBatch
from kafkalog.format.control_record import ControlRecordType, read_control_type
from kafkalog.format.file_names import LOG_SUFFIX
from kafkalog.format.record import Record, iterate_records
from kafkalog.format.record_batch import (
    TimestampType,
    is_control,
    is_crc_valid,
    is_transactional,
    timestamp_type_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.env.filesystem import Filesystem

MAX_DECOMPRESSED_BYTES = 1 << 30
_TIMESTAMP_NAMES = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def batches_of(filesystem: Filesystem, directory: str) -> Iterator[DumpedBatch]:
    """Every batch of the directory's segments in order; CorruptBatch when a CRC is wrong."""
    for name in filesystem.list_dir(directory):
        if not name.endswith(LOG_SUFFIX):
            continue
        log = DumpedLog(filesystem, f"{directory}/{name}")
        try:
            for batch in log.batches():
                if not is_crc_valid(batch.data):
                    raise CorruptBatch(
                        "A batch fails its CRC",
                        file=log.path,
                        position=batch.position,
                        base_offset=batch.header.base_offset,
                    )
                yield batch
        finally:
            log.close()


class Transactions:
    """What the markers of a log say: the aborted ranges, and where the first open one begins."""

    def __init__(self, batches: Iterator[DumpedBatch]) -> None:
        open_since: dict[int, int] = {}
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        self.last_stable_offset = 0
        for batch in batches:
            header = batch.header
            self.last_stable_offset = header.last_offset + 1
            if not is_transactional(header.attributes):
                continue
            if not is_control(header.attributes):
                open_since.setdefault(header.producer_id, header.base_offset)
                continue
            marker = next(iterate_records(batch.data, max_bytes=MAX_DECOMPRESSED_BYTES))
            first = open_since.pop(header.producer_id, None)
            if first is not None and read_control_type(marker.key) is ControlRecordType.ABORT:
                ranges = self._aborted.setdefault(header.producer_id, [])
                ranges.append((first, header.last_offset))
        if open_since:
            self.last_stable_offset = min(open_since.values())

    def is_aborted(self, batch: DumpedBatch) -> bool:
        """Whether a read_committed consumer skips this data batch."""
        header = batch.header
        if not is_transactional(header.attributes):
            return False
        return any(
            first <= header.base_offset <= last
            for first, last in self._aborted.get(header.producer_id, ())
        )


def record_line(record: Record, timestamp_type: str) -> str:
    """One record as the kit's consumer prints it."""
    headers = ",".join(f"[{_java_string(name)},{_base64(value)}]" for name, value in record.headers)
    return (
        f'{{"offset":{record.offset},"timestamp":{record.timestamp},'
        f'"timestampType":"{timestamp_type}","key":{_base64(record.key)},'
        f'"value":{_base64(record.value)},"headers":[{headers}]}}\n'
    )


def _base64(data: bytes | None) -> str:
    return "null" if data is None else f'"{base64.b64encode(data).decode()}"'


def _java_string(name: str) -> str:
    """A JSON string with Jackson's escapes: other than Python's only in upper-case hex digits."""
    text = json.dumps(name, ensure_ascii=False)
    for code in (*range(8), 11, *range(14, 32)):
        text = text.replace(f"\\u{code:04x}", f"\\u{code:04X}")
    return text


def scan_lines(
    filesystem: Filesystem, directory: str, from_offset: int, *, committed: bool
) -> Iterator[str]:
    """Lines of the data records from an offset on; control records are left out."""
    transactions = Transactions(batches_of(filesystem, directory)) if committed else None
    for batch in batches_of(filesystem, directory):
        attributes = batch.header.attributes
        if is_control(attributes) or batch.header.last_offset < from_offset:
            continue
        if transactions is not None:
            if batch.header.base_offset >= transactions.last_stable_offset:
                return
            if transactions.is_aborted(batch):
                continue
        timestamp_type = _TIMESTAMP_NAMES[timestamp_type_of(attributes)]
        for record in iterate_records(batch.data, max_bytes=MAX_DECOMPRESSED_BYTES):
            if record.offset >= from_offset:
                yield record_line(record, timestamp_type)


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--from", "from_offset", type=int, default=0, show_default=True, metavar="N")
@click.option("--committed", is_flag=True, help="Leave out aborted and open transactions.")
def scan(directory: str, from_offset: int, committed: bool) -> None:
    """Print the records of a partition directory as JSON lines; keys and values in base64.

    Example: kafkalog offline scan ./data/orders-0 --from 100
    """
    try:
        for line in scan_lines(
            SystemFilesystem(), directory.rstrip("/"), from_offset, committed=committed
        ):
            sys.stdout.write(line)
    except CorruptBatch as error:
        sys.stdout.flush()
        raise click.ClickException(error.message) from error
