"""Which partitions hold records in the message formats before Kafka 0.11: v0 and v1.

A look at the head of each segment, not a scan: a segment that begins with v2 is taken for one of
v2, though a broker whose ``log.message.format.version`` was lowered may have written both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kafkalog.format.disk.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.log.inspect.directory_facts import segment_bases

if TYPE_CHECKING:
    from kafkalog.env.filesystem import ReadFilesystem

# All formats have these at the same place: offset, size, CRC or epoch, magic.
_HEAD = struct.Struct(">qiib")
_OLD_SIZE_MIN = 14  # of a record of v0 behind its size: CRC, magic, attributes, key, value
_NEW_MAGIC = 2


def old_message_formats(filesystem: ReadFilesystem, directory: str) -> frozenset[int]:
    """Those below 2 with which segments of a partition's directory begin. OSError."""
    found = set()
    for base_offset in segment_bases(filesystem.list_dir(directory)):
        file = filesystem.open_read(f"{directory}/{segment_file_name(base_offset, LOG_SUFFIX)}")
        try:
            head = file.pread(_HEAD.size, 0)
        finally:
            file.close()
        if len(head) == _HEAD.size:
            _, size, _, magic = _HEAD.unpack(head)
            if size >= _OLD_SIZE_MIN and 0 <= magic < _NEW_MAGIC:
                found.add(magic)
    return frozenset(found)
