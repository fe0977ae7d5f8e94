"""How long a segment holds its descriptors: pinned while it has something unsynced, then lent.

Theory. A failed writeback is told once, to the descriptors that were open when it happened. So the
files of a segment stay open from the first unsynced change on until the flush that covers it; then
their handles, still good for writing, go to the bounded cache (``OpenFiles``). The next append
takes them back from there, or opens them anew when others were used since. So a partition that
nobody writes to costs no descriptor for good, whether its segment is active or closed, and what is
open is bounded by a setting and by what is unsynced, not by the number of segments. Writer thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.log.log_segment import LogSegment


def hold(segment: LogSegment) -> None:
    """Pin every file, before anything is changed: a shortage of descriptors leaves all as it was.

    The ``.log`` comes last: that it is pinned says that all are.
    """
    for file in reversed(segment.files):
        file.pin_for_write()


def lend(segment: LogSegment) -> None:
    """Hand the descriptors over to the cache unless something is unsynced; an empty log is not."""
    if not segment.files_to_flush() or not segment.size_bytes:
        for file in segment.files:
            file.unpin()
