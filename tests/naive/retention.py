"""The plain twin of the retention planner: Kafka's three passes, each over the whole list."""

from __future__ import annotations

from kafkalog.log.retention.plan import SegmentFacts


class PlainLog:
    """A log that deletes for real; ``now`` is the moment of the pass.

    ``hold``: an offset and the most bytes (-1: all) that are kept above it from size and time.
    """

    def __init__(
        self,
        segments: list[SegmentFacts],
        start: int,
        watermark: int,
        end: int,
        hold: tuple[int, int] | None,
    ) -> None:
        self.segments = list(segments)
        self.start = start
        self.watermark = watermark
        self.end = end
        self.hold = hold
        self.deleted: list[tuple[int, str]] = []
        self.rolled = False

    def run_held(self, *, has_delete: bool, max_ms: int, max_bytes: int, now: int) -> None:
        """A whole pass; then what the hold keeps comes back, the newest first."""
        before, start = list(self.segments), self.start
        self.run(has_delete=has_delete, max_ms=max_ms, max_bytes=max_bytes, now=now)
        if self.hold is None:
            return
        offset, most = self.hold
        bases = [segment.base_offset for segment in before] + [self.end]
        held = [
            index
            for index, (_, name) in enumerate(self.deleted)
            if bases[index + 1] > offset and name != "start_offset"
        ]
        active = len(before) - 1
        while held and 0 <= most < sum(
            before[index].size_bytes for index in held if index != active
        ):
            held.pop(0)
        if held == [active] and 0 <= most < before[active].size_bytes:
            held = []
        if held:
            del self.deleted[held[0] :]
        self.rolled = len(self.deleted) == len(before)
        left = [SegmentFacts(self.end, 0, 0)] if self.rolled else before[len(self.deleted) :]
        self.segments = left
        self.start = max(start, left[0].base_offset) if self.deleted else start

    def run(self, *, has_delete: bool, max_ms: int, max_bytes: int, now: int) -> None:
        start = self.start
        self._pass("start_offset", lambda s, n: n is not None and n.base_offset <= start)
        if not has_delete:
            return
        total = sum(segment.size_bytes for segment in self.segments)
        if max_bytes >= 0 and total >= max_bytes:
            diff = [total - max_bytes]

            def is_too_much(segment: SegmentFacts, _: SegmentFacts | None) -> bool:
                if diff[0] - segment.size_bytes >= 0:
                    diff[0] -= segment.size_bytes
                    return True
                return False

            self._pass("size", is_too_much)
        if max_ms >= 0:
            self._pass("time", lambda s, _: now - s.largest_timestamp_ms > max_ms)

    def _pass(self, name: str, may_go: object) -> None:
        going = []
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1] if number + 1 < len(self.segments) else None
            upper = self.end if following is None else following.base_offset
            is_last_and_empty = following is None and segment.size_bytes == 0
            if is_last_and_empty or upper > self.watermark:
                break
            if not may_go(segment, following):  # type: ignore[operator] # one of the three above
                break
            going.append(segment)
        if not going:
            return
        if len(going) == len(self.segments):
            self.rolled = True
            self.segments.append(SegmentFacts(self.end, 0, 0))
        del self.segments[: len(going)]
        self.start = max(self.start, self.segments[0].base_offset)
        self.deleted += [(segment.base_offset, name) for segment in going]
