"""One record by its offset, whole as far as a page can hold it; and the form that appends one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kafkalog.console.json_tree import Node, json_tree
from kafkalog.console.view import View
from kafkalog.console.views.records import (
    ALONE,
    PartitionReader,
    RecordRow,
    Show,
    ShownBytes,
    row_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.broker.operations import Operations
    from kafkalog.format.records.record import Record


class RecordView(View):
    """``record``: null when no record has the offset; the neighbours are null at the ends.

    A damaged batch is the record of every offset in it.
    """

    template: ClassVar[str] = "record.html"
    heading: ClassVar[str] = "Record {offset} of {topic}-{partition}"

    topic: str
    partition: int
    offset: int
    log_start_offset: int
    high_watermark: int
    show: Show
    record: RecordRow | None
    previous_offset: int | None
    next_offset: int | None

    @staticmethod
    def tree(shown: ShownBytes | None) -> Node | None:
        """The value of a record as a tree, if it is JSON and whole."""
        if shown is None or shown.form != "text" or shown.is_cut:
            return None
        return json_tree(shown.text)


def record_view(
    operations: Operations, topic: str, partition: int, offset: int, show: Show
) -> RecordView:
    """Blocks. Raises as ``Operations.fetch``."""
    log = operations.logs.describe(topic, partition)
    reader = PartitionReader(operations, topic, partition, log)
    low, high = log.log_start_offset, log.high_watermark
    row, following = None, None
    if low <= offset < high:
        for each in reader.forward(offset, 2).slices:
            for index in range(each.first, each.end):
                found = row_of(each, index, show, limits=ALONE)
                if row is None and (found.offset == offset or each.table is None):
                    row = found
                elif following is None and found.offset > offset:
                    following = found.offset
    before = reader.backward(min(max(offset, low), high), 1).slices if offset > low else []
    return RecordView.of(
        log,
        now_ms=operations.now_ms(),
        topic=topic,
        partition=partition,
        offset=offset,
        show=show,
        record=row,
        previous_offset=row_of(before[-1], before[-1].end - 1, show).offset if before else None,
        next_offset=following,
    )


def read_record(operations: Operations, topic: str, partition: int, offset: int) -> Record | None:
    """The record of an offset; None when there is none. Blocks; raises as a fetch."""
    log = operations.logs.describe(topic, partition)
    if not log.log_start_offset <= offset < log.high_watermark:
        return None
    reader = PartitionReader(operations, topic, partition, log)
    for each in reader.forward(offset, 1).slices:
        found = None if each.table is None else each.table.record(each.first)
        if found is not None and found.offset == offset:
            return found
    return None


class ProduceView(View):
    """``offset`` in ``partition``: of the record that the page links to, after it was appended.

    refusal     why what was typed could not be appended; the form shows it again
    typed       by the name of the field
    """

    template: ClassVar[str] = "produce.html"
    heading: ClassVar[str] = "{topic}"

    topic: str
    partition_count: int
    partition: int | None
    offset: int | None
    refusal: str | None
    typed: dict[str, str]

    @property
    def chosen(self) -> int | None:
        """The partition in the form: stays what it was."""
        text = self.typed.get("partition", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def produce_view(
    operations: Operations,
    topic: str,
    *,
    partition: int | None = None,
    offset: int | None = None,
    refusal: str | None = None,
    typed: Mapping[str, str] | None = None,
) -> ProduceView:
    """No disk. UnknownTopic."""
    return ProduceView(
        now_ms=operations.now_ms(),
        topic=topic,
        partition_count=operations.partition_count(topic),
        partition=partition,
        offset=offset,
        refusal=refusal,
        typed=dict(typed or {}),
    )
