"""Tellers: how the client of a produce stream learns what became of its records.

A receipt a record while it sends, or one summary at the end. Owned by the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from aiohttp import hdrs, web

from kafkalog.log.values import LogAppendInfo
from kafkalog.manager.operations import Acks
from kafkalog.server.appends import (
    DURABILITIES,
    durability_header,
    failed_receipt,
    mixed_receipts,
)
from kafkalog.server.error_map import error_body
from kafkalog.server.replies import REQUEST_ID, error_reply, json_reply, seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.server.appends import Fault, Results
    from kafkalog.server.produce_stream import SettledGroup

# Records named in a summary that were not appended; the others are counted.
_ERRORS_SHOWN = 100
_TOLD = ("kafka_error", "retriable", "details")  # of a failure, beside what v2 tells


class Receipts:
    """An answer that goes out while the request comes in.

    ``is_eager``: the status is out before anything is read, for clients that wait for it.
    """

    def __init__(
        self,
        request: web.Request,
        content_type: str,
        acks: Acks,
        write: Callable[[SettledGroup], bytes],
        *,
        is_eager: bool,
    ) -> None:
        self._request = request
        headers = {hdrs.CONTENT_TYPE: content_type, **durability_header(acks)}
        self._response = web.StreamResponse(headers=headers)
        self._write = write
        self._is_eager = is_eager

    @property
    def is_begun(self) -> bool:
        """Whether the status is out: from then on every error is in band."""
        return self._response.prepared

    async def begin(self) -> None:
        """See Teller."""
        if self._is_eager:
            await self._send_status()

    async def tell(self, group: SettledGroup) -> None:
        """See Teller. Waits until the client has taken most of what was told before."""
        await self._send_status()
        await self._response.write(self._write(group))

    async def end(self, last_words: bytes = b"") -> web.StreamResponse:
        """The end of the stream; ``last_words``: why it came before that of the request."""
        await self._send_status()
        if last_words:
            self._response.force_close()  # what the client still sends is nobody's
        await self._response.write_eof(last_words)
        return self._response

    async def _send_status(self) -> None:
        if not self.is_begun:
            seal(self._response, self._request[REQUEST_ID])
            await self._response.prepare(self._request)


def receipt_lines(results: Results) -> bytes:
    """A line each: the receipts of v2, and of a failure whether it is worth repeating."""
    if not results.record_count:
        return b""
    if results.faults:
        return b"\n".join((*map(_ENCODE, mixed_receipts(results, _failed)), b""))
    # Only digits vary in them: nothing else can look like the end of one.
    array = results.receipts().removeprefix(b'"offsets":[').removesuffix(b"]")
    return array.replace(b"},{", b"}\n{") + b"\n"


def last_line(fault: Fault) -> bytes:
    """The line that ends a stream before the end of its body."""
    return _ENCODE({**_failed(fault), "end_of_stream": True}) + b"\n"


_ENCODE = msgspec.json.Encoder().encode


def _failed(fault: Fault) -> dict[str, object]:
    _, body = error_body(fault)
    receipt = failed_receipt(fault)
    receipt.update((name, body[name]) for name in _TOLD if name in body)
    return receipt


@dataclass(slots=True)
class _Range:
    """What went to one partition."""

    partition: int
    count: int
    base_offset: int
    last_offset: int


@dataclass(slots=True)
class Summary:
    """Counts, and tells at the end."""

    count: int = 0  # of records that were appended
    _failed_count: int = 0
    _seen_count: int = 0
    _ranges: dict[int, _Range] = field(default_factory=dict)
    _errors: list[dict[str, object]] = field(default_factory=list)
    _first_fault: Fault | None = None
    _codes: set[int] = field(default_factory=set)
    _is_duplicate: bool = False

    async def begin(self) -> None:
        """See Teller."""

    async def tell(self, group: SettledGroup) -> None:
        """See Teller."""
        self.add(group.results)

    def add(self, results: Results) -> None:
        """What became of further records."""
        for partition, numbers, outcome in results.appended:
            if isinstance(outcome, LogAppendInfo):
                self.count += len(numbers)
                self._is_duplicate |= outcome.duplicate
                self._extend(partition, len(numbers), outcome)
        for number, fault in sorted(results.faults.items()):
            self._failed_count += 1
            self._note(fault, {"index": self._seen_count + number})
        self._seen_count += results.record_count

    def _extend(self, partition: int, count: int, info: LogAppendInfo) -> None:
        known = self._ranges.get(partition)
        if known is None:
            self._ranges[partition] = _Range(partition, count, info.first_offset, info.last_offset)
            return
        known.count += count
        known.last_offset = max(known.last_offset, info.last_offset)
        known.base_offset = min(known.base_offset, info.first_offset)

    def _note(self, fault: Fault, head: dict[str, object]) -> None:
        entry, body = error_body(fault)
        self._first_fault = self._first_fault or fault
        self._codes.add(entry.error_code)
        if len(self._errors) < _ERRORS_SHOWN or "end_of_stream" in head:
            self._errors.append({**head, **body})

    def reply(self, request: web.Request, acks: Acks, fault: Fault | None = None) -> web.Response:
        """The answer; with the error's own status when it is all that there is to tell.

        ``fault``: why the stream ended before its end; raised to who wants no answer (acks=0) when
        nothing was appended.
        """
        if acks is Acks.NONE:
            if fault is not None and not self.count:
                raise fault
            return silent_reply()
        if fault is not None:
            self._note(fault, {"index": None, "end_of_stream": True})
        ranges = sorted(self._ranges.values(), key=lambda each: each.partition)
        body: dict[str, object] = {
            "count": self.count,
            "failed_count": self._failed_count,
            "partitions": ranges,
            "errors": self._errors,
        }
        if self._is_duplicate:
            body["duplicate"] = True
        if not self.count and self._first_fault is not None and len(self._codes) == 1:
            return error_reply(self._first_fault, request[REQUEST_ID], extra=body)
        headers = durability_header(acks)
        return json_reply({**body, "durability": DURABILITIES[acks]}, headers=headers)


def silent_reply() -> web.Response:
    """202: what acks=0 is answered."""
    return web.Response(status=202, headers=durability_header(Acks.NONE))
