"""A cache of encoded pieces for streams at the same position of a log.

Streams that follow a log wait for the same append and need the same bytes: with a thousand of them,
reading and encoding would be most of the time until the last one has its record. The cache keeps
the latest few pieces, and checks at each look-up that the log still holds them. Owned by the event
loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kafkalog.log.unified_log import UnifiedLog

_KEPT = 32
# Each is a chunk, and of a large record more: the newest is kept in any case, because the larger it
# is the more it saves.
_KEPT_BYTES = 4 << 20


class TailPiece(NamedTuple):
    """Records from an offset to the readable end of the log, and the text that follows them."""

    data: bytes
    record_count: int
    next_offset: int


class TailCache:
    """See the module."""

    def __init__(self) -> None:
        self._pieces: dict[Hashable, tuple[UnifiedLog, str, TailPiece]] = {}
        self._kept_bytes = 0

    def find(self, key: Hashable, log: UnifiedLog, position: int) -> TailPiece | None:
        """The piece from position on that was kept for this key; None when it may be another now.

        The key says all that the bytes depend on but the log's records.
        """
        found = self._pieces.get(key)
        if found is None:
            return None
        owner, generation, piece = found
        is_same = owner is log and generation == log.local.generation
        return piece if is_same and log.log_start_offset <= position else None

    def keep(self, key: Hashable, log: UnifiedLog, generation: str, piece: TailPiece) -> None:
        """Remember it instead of the oldest; ``generation`` is that of before it was read."""
        self._drop(key)
        size = len(piece.data)
        while self._pieces and (
            len(self._pieces) >= _KEPT or self._kept_bytes + size > _KEPT_BYTES
        ):
            self._drop(next(iter(self._pieces)))
        self._pieces[key] = (log, generation, piece)
        self._kept_bytes += size

    def _drop(self, key: Hashable) -> None:
        dropped = self._pieces.pop(key, None)
        if dropped is not None:
            self._kept_bytes -= len(dropped[2].data)
