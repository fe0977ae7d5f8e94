"""The two functions for all readers of logs, in directories or at daemons.

A planner gets topics, bounds and pieces from ``open_logs``. A task, also in another process or on
another machine, gets the batches of a piece from ``read_piece``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.spark.logs.values import CHUNK_BYTES, Access, Chunk, Piece, topic_recreated

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkalog.spark.logs.daemon import DaemonLogs
    from kafkalog.spark.logs.directory import DirectoryLogs
    from kafkalog.spark.logs.values import DataLost

    OpenedLogs = DirectoryLogs | DaemonLogs
    """`Logs` with durable ends and archived offsets, for archives."""


def open_logs(access: Access) -> OpenedLogs:
    """Open the logs of an access, which are first reached when they are used.

    Raises ValueError for malformed URLs, OSError for TLS files that cannot be read.
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

    With read_committed there are no batches of aborted transactions; there may be control batches.
    CRCs are checked here only, also those of a daemon's answers.

    Raises DataLost if offsets of the range are below the log start or above the end of the log,
    CorruptLog, and the errors of `Logs`. Close the generator unless it is read to its end: it holds
    descriptors or a connection.
    """
    if access.paths:
        from kafkalog.spark.logs.directory_reader import read_directory_piece

        return read_directory_piece(piece, access, chunk_bytes, check_crcs=check_crcs)
    from kafkalog.spark.logs.daemon import read_daemon_piece

    return read_daemon_piece(piece, access, chunk_bytes, check_crcs=check_crcs)


def require_same_topic(piece: Piece, access: Access) -> None:
    """Raise DataLost if another topic has the name now: it may have given some of the records.

    Call it after a piece was read. A topic that is deleted by then was read before.
    """
    error = other_topic(piece, access)
    if error is not None:
        raise error


def other_topic(piece: Piece, access: Access) -> DataLost | None:
    """The error for another topic that has the name now; None: there is none, or no id is known."""
    if piece.topic_id is None:
        return None
    if access.paths:
        from kafkalog.spark.logs.directory_reader import directory_topic_id

        now = directory_topic_id(piece, access)
    else:
        from kafkalog.spark.logs.daemon import daemon_topic_id

        now = daemon_topic_id(piece, access)
    if now is None or now == piece.topic_id:
        return None
    return topic_recreated(piece.range, piece.topic_id, now)
