"""The two questions of everything that reads logs: which ones there are, and what a piece holds.

A planner asks ``open_logs`` for topics, bounds and pieces; a task, maybe in another process or on
another machine, asks ``read_piece`` for the batches of one piece. Both are given an `Access`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.spark.logs.values import CHUNK_BYTES, Access, Chunk, Piece

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkalog.spark.logs.daemon import DaemonLogs
    from kafkalog.spark.logs.directory import DirectoryLogs

    OpenedLogs = DirectoryLogs | DaemonLogs
    """`Logs` that also tell topic ids and durable ends, and hear what is archived."""


def open_logs(access: Access) -> OpenedLogs:
    """The logs of an access. Raises nothing for places that are away: their first use does.

    ValueError for URLs that are none, OSError for TLS files that cannot be read.
    """
    if access.paths:
        from kafkalog.spark.logs.directory import DirectoryLogs

        return DirectoryLogs(access)
    from kafkalog.spark.logs.daemon import DaemonLogs

    return DaemonLogs(access)


def read_piece(
    piece: Piece, access: Access, *, chunk_bytes: int = CHUNK_BYTES, check_crcs: bool = True
) -> Generator[Chunk, None, None]:
    """The batches of a piece, in chunks of about ``chunk_bytes`` (a single batch may be larger).

    With read_committed no batch of an aborted transaction is among them; control batches may be.
    A CRC that is not checked here is never checked: of a daemon's answers, too.

    Raises DataLost when offsets of the range lie below the log start or beyond the end of the log,
    CorruptLog, and what `Logs` raises. Close the generator when it is not read to its end: it holds
    descriptors or a connection.
    """
    if access.paths:
        from kafkalog.spark.logs.directory_reader import read_directory_piece

        return read_directory_piece(piece, access, chunk_bytes, check_crcs=check_crcs)
    from kafkalog.spark.logs.daemon import read_daemon_piece

    return read_daemon_piece(piece, access, chunk_bytes, check_crcs=check_crcs)
