"""The plain twin of the retention planner: Kafka's three passes, each over the whole list."""

from __future__ import annotations

from typing import NamedTuple


class PlainSegment(NamedTuple):
    """Base offset, bytes, largest timestamp."""

    base: int
    size: int
    timestamp: int


class PlainLog:
    """A log that deletes for real; ``now`` is the moment of the pass."""

    def __init__(
        self, segments: list[PlainSegment], start: int, watermark: int, end: int, hold: int | None
    ) -> None:
        self.segments = list(segments)
        self.start = start
        self.bound = watermark if hold is None else min(watermark, hold)
        self.end = end
        self.deleted: list[tuple[int, str]] = []
        self.rolled = False

    def run(self, *, has_delete: bool, max_ms: int, max_bytes: int, now: int) -> None:
        """One whole pass."""
        start = self.start
        self._pass("start_offset", lambda s, n: n is not None and n.base <= start)
        if not has_delete:
            return
        total = sum(segment.size for segment in self.segments)
        if max_bytes >= 0 and total >= max_bytes:
            diff = [total - max_bytes]

            def is_too_much(segment: PlainSegment, _: PlainSegment | None) -> bool:
                if diff[0] - segment.size >= 0:
                    diff[0] -= segment.size
                    return True
                return False

            self._pass("size", is_too_much)
        if max_ms >= 0:
            self._pass("time", lambda s, _: now - s.timestamp > max_ms)

    def _pass(self, name: str, may_go: object) -> None:
        going = []
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1] if number + 1 < len(self.segments) else None
            upper = self.end if following is None else following.base
            is_last_and_empty = following is None and segment.size == 0
            if is_last_and_empty or upper > self.bound:
                break
            if not may_go(segment, following):  # type: ignore[operator] # one of the three above
                break
            going.append(segment)
        if not going:
            return
        if len(going) == len(self.segments):
            self.rolled = True
            self.segments.append(PlainSegment(self.end, 0, 0))
        del self.segments[: len(going)]
        self.start = max(self.start, self.segments[0].base)
        self.deleted += [(segment.base, name) for segment in going]
