"""Where one JSON document of a stream ends and the next begins, chunk by chunk.

Documents are one a line (NDJSON), or concatenated with or without white space between them (v3's
produce). Finds boundaries only; the decoder decides whether a document is JSON. No byte is examined
twice, so that the time depends on the bytes of a stream and not on its chunks. Runs no Python
statement per byte. One object a stream; any thread, one at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Flags = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

# What a byte is to the search for boundaries; 0: nothing.
_QUOTE, _OPENS, _CLOSES, _BACKSLASH = 1, 2, 3, 4
_KINDS = bytearray(256)
for _kind, _characters in ((_QUOTE, b'"'), (_OPENS, b"{["), (_CLOSES, b"}]"), (_BACKSLASH, b"\\")):
    for _byte in _characters:
        _KINDS[_byte] = _kind
_BLANK = b" \t\r\n"


class Splitter(Protocol):
    """Bytes in, whole documents out."""

    @property
    def ends_at_broken(self) -> bool:
        """Whether the documents after one that is no JSON cannot be trusted."""

    @property
    def pending_bytes(self) -> int:
        """Of the document that has begun and not ended."""

    @property
    def is_lost(self) -> bool:
        """Something else was between two documents: the rest cannot be split."""

    def feed(self, data: bytes) -> list[bytes]:
        """The documents that end in data, in order."""

    def finish(self) -> list[bytes]:
        """The rest at the end of the stream: one document, complete or not, or none."""


class Lines:
    """A document a line; blank lines are skipped. The last line may lack its line end."""

    ends_at_broken = False
    is_lost = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.pending_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """See Splitter."""
        end = data.rfind(b"\n")
        if end < 0:
            self._parts.append(data)
            self.pending_bytes += len(data)
            return []
        whole = data[:end] if not self._parts else b"".join((*self._parts, data[:end]))
        rest = data[end + 1 :]
        self._parts, self.pending_bytes = [rest] if rest else [], len(rest)
        return list(filter(bytes.strip, whole.split(b"\n")))

    def finish(self) -> list[bytes]:
        """See Splitter."""
        rest = b"".join(self._parts)
        self._parts, self.pending_bytes = [], 0
        return [rest] if rest.strip() else []


class Concatenated:
    """Objects and arrays, separated by counting brackets outside of strings.

    A backslash escapes the next byte everywhere, because valid JSON has none outside of strings.
    """

    ends_at_broken = True  # a surplus quote makes a string of what follows

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.pending_bytes = 0
        self.is_lost = False
        # at the end of what was fed
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False  # the next byte

    def feed(self, data: bytes) -> list[bytes]:
        """See Splitter. Returns nothing once it is lost."""
        if self.is_lost or not data:
            return []
        is_open = self._depth > 0
        brackets, is_opening, depths = self._brackets(data)
        ends = brackets[(depths == 0) & ~is_opening] + 1
        starts = brackets[(depths == 1) & is_opening]
        if is_open:
            starts = np.concatenate((np.zeros(1, np.int64), starts))
        count = self._clean_count(data, starts, ends)
        spans = map(slice, starts[:count].tolist(), ends[:count].tolist())
        documents = list(map(data.__getitem__, spans))
        if count:
            documents[0] = b"".join((*self._parts, documents[0]))
        if count or self.is_lost:
            self._parts, self.pending_bytes = [], 0
        if not self.is_lost and len(starts) > count:
            rest = data[int(starts[count]) :]
            self._parts.append(rest)
            self.pending_bytes += len(rest)
        return documents

    def finish(self) -> list[bytes]:
        """See Splitter."""
        rest = b"".join(self._parts)
        self._parts, self.pending_bytes = [], 0
        return [rest] if rest else []

    def _brackets(self, data: bytes) -> tuple[Int64s, Flags, Int64s]:
        """Of the brackets outside of strings: position, whether it opens, the depth after it."""
        all_kinds = np.frombuffer(data.translate(_KINDS), np.uint8)
        marks = np.flatnonzero(all_kinds != 0)  # of flags it takes a third of the time
        kinds = all_kinds[marks]
        is_quote = kinds == _QUOTE
        is_backslash = kinds == _BACKSLASH
        if self._is_escaped or is_backslash.any():
            is_quote &= ~self._escaped(all_kinds == _BACKSLASH)[marks]
        # Odd from an opening quote on; a bracket is in a string when the count is odd.
        # Bytes that run over keep that, and need no memory that the system would have to find.
        quotes = np.cumsum(is_quote, dtype=np.uint8)
        quotes += self._is_in_string
        is_inside = (quotes & 1).astype(np.bool_)
        if len(marks):
            self._is_in_string = bool(is_inside[-1])
        is_bracket = ~is_inside & ((kinds == _OPENS) | (kinds == _CLOSES))
        is_opening = kinds[is_bracket] == _OPENS
        depths = np.cumsum(np.where(is_opening, 1, -1)) + self._depth
        if len(depths):
            self._depth = int(depths[-1])
        return marks[is_bracket], is_opening, depths

    def _escaped(self, is_backslash: Flags) -> Flags:
        """Which bytes follow an odd run of backslashes."""
        count = len(is_backslash)
        positions: Int64s = np.arange(count, dtype=np.int64)
        before = -2 if self._is_escaped else -1  # one more backslash stood before the first byte
        plain = np.where(is_backslash, before, positions)
        run_bytes = positions - np.maximum.accumulate(plain)
        is_odd = (run_bytes & 1).astype(np.bool_)
        escaped = np.empty(count, np.bool_)
        escaped[0] = self._is_escaped
        escaped[1:] = is_odd[:-1]
        self._is_escaped = bool(is_odd[-1])
        return escaped

    def _clean_count(self, data: bytes, starts: Int64s, ends: Int64s) -> int:
        """How many documents end before the first gap with anything but white space."""
        gap_starts = np.concatenate((np.zeros(1, np.int64), ends))
        gap_ends = np.concatenate((starts, np.full(1, len(data), np.int64)))
        count = min(len(gap_starts), len(gap_ends))
        gap_starts, gap_ends = gap_starts[:count], gap_ends[:count]
        numbers = np.flatnonzero(gap_starts != gap_ends)
        spans = map(slice, gap_starts[numbers].tolist(), gap_ends[numbers].tolist())
        gaps = list(map(data.__getitem__, spans))
        if not b"".join(gaps).strip(_BLANK):
            return len(ends)
        self.is_lost = True
        found = zip(numbers.tolist(), gaps, strict=True)
        return next(number for number, gap in found if gap.strip(_BLANK))
