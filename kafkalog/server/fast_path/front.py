"""The front of a connection: requests of the common shape are answered here, all others behind it.

aiohttp parses a request, starts a task and makes a request and a response for it: most of what a
small append costs. Where the whole head is one that ``heads.py`` knows, nothing of this is needed.
Anything else, and any append that is not certain to be accepted, is given to aiohttp's connection
untouched, byte for byte, so that there is one place for each refusal.

The front knows where each request ends, for it gives a head and its body on separately. A
connection whose bytes it cannot count (a chunked body, a head in pieces as its first bytes, a
refusal) belongs to aiohttp from then on. Answers keep the order of requests: while appends of the
fast path are in work, a request for aiohttp waits with all bytes after it, and the other way round.
Nothing is begun while the client does not take what was written.

Bytes are received into one buffer of all connections, for they are used or copied before the next
ones come; a body that is not there whole is received straight into its own memory.
Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections import deque
from typing import TYPE_CHECKING, cast

import structlog
from aiohttp import hdrs

from kafkalog.broker.access_rules import Action
from kafkalog.errors import KafkalogError
from kafkalog.server.fast_path.append import admit, begin_append, release
from kafkalog.server.fast_path.counts import Counts
from kafkalog.server.fast_path.fetch import (
    Sending,
    SendState,
    begin_sending,
    log_of,
    read_now,
    span_of,
)
from kafkalog.server.fast_path.heads import AskedFetch, KnownHeads

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine

    from kafkalog.server.api import Api
    from kafkalog.server.fast_path.append import Append
    from kafkalog.server.fast_path.heads import AskedAppend
    from kafkalog.server.protocol.connection import Connection
    from kafkalog.server.protocol.replies import RequestIds
    from kafkalog.server.security.gate import Filters

_log = structlog.get_logger("kafkalog.server")

_BUFFER_BYTES = 256 << 10
# The largest body that is checked on the event loop.
_BODY_BYTES = 256 << 10
_HEAD_END = b"\r\n\r\n"
# Of one connection: so many requests are in work at once, and more wait in the socket.
_IN_WORK = 128
# Fetches of a connection that are answered in one turn of the loop.
_FETCHES = 16
# Fetches of a connection that were not answered here are tried again after as many, up to so many.
_UNASKED = 63
_UNSUPPORTED = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))
# A body that stops for so long is aiohttp's to wait for.
_BODY_SECONDS = 1.0


class FastPath:
    """What the fronts of a listener share."""

    def __init__(self, api: Api, request_ids: RequestIds, filters: Filters) -> None:
        # constant after construction
        self.api = api
        self._gate = filters.gate
        self.request_ids = request_ids
        self.buffer = bytearray(_BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.heads = KnownHeads(
            filters.hosts, None if filters.gate is None else filters.gate.authenticators
        )
        self._loop = asyncio.get_running_loop()
        self.counts = Counts(api.metrics, self._loop, api.operations.is_topic)
        # owned by the event loop
        self.sends_files = True  # no file system has refused yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_be_answered: list[Front] = []

    def view_of(self, asked: AskedAppend | AskedFetch) -> tuple[Api, bool] | None:
        """What the client sees, and whether it may see paths; None: aiohttp's way finds out."""
        if self._gate is None:
            return self.api, True
        action = Action.READ if isinstance(asked, AskedFetch) else Action.WRITE
        return self._gate.remembered_view(asked.mark, action, asked.topic)

    def front_of(self, connection: Connection) -> Front:
        """The front of a new connection."""
        return Front(connection, self)

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """As the loop's."""
        return self._loop.call_later(seconds, call)

    def wait_until_writable(self, waiting: socket.socket, call: Callable[[], None]) -> None:
        """Call it as often as the socket takes more, until ``stop_waiting``."""
        self._loop.add_writer(waiting.fileno(), call)

    def stop_waiting(self, waiting: socket.socket) -> None:
        """No call more; also where none was asked for."""
        self._loop.remove_writer(waiting.fileno())

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Have it done beside the loop's other work."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def answer_soon(self, front: Front) -> None:
        """Once what ends in this turn of the loop has ended: one write a connection."""
        if not self._to_be_answered:
            self._loop.call_soon(self._answer)
        self._to_be_answered.append(front)

    def _answer(self) -> None:
        fronts, self._to_be_answered = self._to_be_answered[::-1], []
        try:
            while fronts:
                fronts.pop().send_answers()
        finally:  # an error is of one connection
            for front in fronts:
                self.answer_soon(front)


class Front(asyncio.BufferedProtocol):
    """The protocol of a transport; see the module."""

    __slots__ = (
        "_asked",
        "_body",
        "_body_timer",
        "_connection",
        "_filled",
        "_has_ended",
        "_head",
        "_in_work",
        "_is_closing",
        "_is_counted",
        "_is_ordinary",
        "_is_paused",
        "_is_to_be_answered",
        "_is_waiting",
        "_last_head",
        "_left",
        "_misses",
        "_path",
        "_sending",
        "_socket",
        "_transport",
        "_unasked",
        "_waiting",
    )

    def __init__(self, connection: Connection, path: FastPath) -> None:
        self._connection = connection
        self._path = path
        self._transport: asyncio.Transport | None = None
        self._is_counted = True  # it is known where requests begin
        self._left = 0  # bytes of a body that is aiohttp's
        self._in_work: deque[Append] = deque()
        self._is_to_be_answered = False
        self._is_closing = False  # nothing is begun any more, and the last answer closes
        self._is_paused = False  # the client takes nothing
        self._has_ended = False  # it sends nothing more
        self._last_head = b""  # of the newest request of the fast path
        self._waiting = b""  # the beginning of a head; with ``_is_waiting`` all that came
        self._is_waiting = False
        self._sending: Sending | None = None  # an answer from a file
        self._socket: socket.socket | None = None  # of the same connection, for files
        self._misses = 0  # of fetches in a row that could not be sent from a file, about
        self._unasked = 0  # so many fetches more are not tried
        self._is_ordinary = False  # the next request is aiohttp's, even if its head is known
        # a body that is being received
        self._body: bytearray | None = None
        self._filled = 0
        self._head = b""
        self._asked: AskedAppend | None = None
        self._body_timer: asyncio.TimerHandle | None = None

    # ---- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Behind this front the connection has the same transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._connection.front = self
        self._connection.connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """What is in work is appended all the same, and its answer dropped."""
        if self._body is not None:
            self._drop_body()
        self._drop_socket()
        self._transport = None
        self._waiting = b""
        self._in_work.clear()
        self._connection.connection_lost(exc)
        self._connection.front = None  # no circle

    def pause_writing(self) -> None:
        """The client does not take everything: no answer more is written, no request begun."""
        self._is_paused = True
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """It has everything."""
        self._is_paused = False
        self._connection.resume_writing()
        self.send_answers()

    def eof_received(self) -> bool | None:
        """What is in work is answered, and sent whole, before the connection closes."""
        self._has_ended = True
        if self._body is not None:
            self._give_up_body()
        if self._has_work or self._is_waiting:
            return self._transport is not None and self._connection.ssl_context is None
        if self._waiting:
            piece, self._waiting = self._waiting, b""
            self._give_rest(piece)
        return self._connection.eof_received()

    @property
    def is_busy(self) -> bool:
        """Whether there is a request of which not all was done, or an answer to take."""
        return bool(
            self._in_work
            or self._sending is not None
            or self._is_waiting
            or self._body is not None
            or self._is_paused
        )

    @property
    def _has_work(self) -> bool:
        return bool(self._in_work) or self._sending is not None

    def next_request_id(self) -> str:
        """For an answer."""
        return self._path.request_ids.next()

    # ---- what comes

    def get_buffer(self, sizehint: int) -> memoryview:
        """The rest of the body that is received, else the buffer of all connections."""
        if self._body is not None:
            return memoryview(self._body)[self._filled :]
        return self._path.view

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        path = self._path
        if self._body is not None:
            self._filled += nbytes
            if self._filled == len(self._body):
                self._end_body()
        elif not self._is_counted:
            self._connection.data_received(bytes(path.view[:nbytes]))
        elif self._waiting:
            data = self._waiting + path.view[:nbytes]
            self._waiting = b""
            self._take(data, len(data))
        else:
            self._take(path.buffer, nbytes)

    def _take(self, data: bytes | bytearray, end: int) -> None:
        """Requests, and pieces of them, up to ``end``."""
        view, position, fetches = memoryview(data), 0, 0
        while position < end:
            if self._left or not self._is_counted:
                size = end - position
                if self._is_counted:
                    size = min(size, self._left)
                    self._left -= size
                self._connection.data_received(bytes(view[position : position + size]))
                position += size
                continue
            found = data.find(_HEAD_END, position, end)
            if found < 0:
                self._take_piece(bytes(view[position:end]))
                return
            body_at = found + len(_HEAD_END)
            head = bytes(view[position:body_at])
            is_open = self._connection.is_idle and not self._is_ordinary
            known = self._path.heads.find(head) if is_open else None
            if known is not None and (self._is_paused or len(self._in_work) >= _IN_WORK):
                self._wait(bytes(view[position:end]))
                return
            asked, number = known or (None, 0)
            if isinstance(asked, AskedFetch):
                if fetches == _FETCHES:  # others have their turn
                    self._wait(bytes(view[position:end]))
                    self._answer_soon()
                    return
                if not self._in_work and self._begin_fetch(head, asked, number):
                    position, fetches = body_at, fetches + 1
                    continue
            elif asked is not None and number <= _BODY_BYTES:
                position_after = body_at + number
                if position_after > end:
                    if self._receive(head, asked, number, view[body_at:end]):
                        return
                elif self._begin(head, asked, bytes(view[body_at:position_after])):
                    position = position_after
                    continue
                self._is_ordinary = True
            if self._has_work:
                self._wait(bytes(view[position:end]))
                return
            self._give_head(head)
            position = body_at

    def _begin(self, head: bytes, asked: AskedAppend, data: bytes | memoryview) -> bool:
        """Whether the append is in work now."""
        api = self._path.api
        if not self._is_admitted(len(data)):
            return False
        view = self._path.view_of(asked)
        append = None
        if view is not None:
            counts, (seen, names_paths) = self._path.counts, view
            append = begin_append(self, seen, counts, asked, data, names_paths=names_paths)
        if append is None:
            release(api, len(data))
            return False
        self._in_work.append(append)
        self._last_head = head
        self._connection.note_front_request()
        return True

    def _is_admitted(self, size_bytes: int) -> bool:
        """Whether a request may be begun; the bounds have it then."""
        if self._is_closing or self._connection.is_finishing:
            return False
        return admit(self._path.api, size_bytes, is_ahead=bool(self._in_work))

    def _give_head(self, head: bytes) -> None:
        """To aiohttp; what it says of the body tells where the request ends."""
        self._is_ordinary = False
        message = self._connection.take_head(head)
        if message is None or message.chunked or message.upgrade or message.method == "CONNECT":
            self._is_counted = False
            return
        self._left = int(message.headers.get(hdrs.CONTENT_LENGTH, "0"))
        self._path.heads.learn(head, message)

    def _take_piece(self, piece: bytes) -> None:
        """The beginning of a head: it is kept if it is that of one like the last."""
        if self._last_head and KnownHeads.is_beginning(piece, self._last_head):
            self._waiting = piece
            if not self._connection.is_busy:
                self._connection.begin_header_timer()
        elif self._has_work:
            self._wait(piece)
        else:
            self._give_rest(piece)

    def _give_rest(self, piece: bytes) -> None:
        """To aiohttp, as is all that follows."""
        self._is_counted = False
        self._connection.data_received(piece)

    # ---- an answer from a file

    def _begin_fetch(self, head: bytes, asked: AskedFetch, offset: int) -> bool:
        """Whether the answer was sent, or is on its way."""
        path, connection = self._path, self._connection
        if self._is_closing or connection.is_finishing or self._transport is None:
            return False
        if self._unasked:
            self._unasked -= 1
            return False
        started = time.perf_counter()
        view = path.view_of(asked)
        size_bytes = 0 if view is None else self._answer_fetch(view[0], asked, offset)
        if not size_bytes:
            self._misses = min(2 * self._misses + 1, _UNASKED)
            self._unasked = self._misses
            return False
        self._misses = 0
        self._last_head = head
        connection.note_front_request()
        path.counts.note_fetch(asked.topic, size_bytes, time.perf_counter() - started)
        if self._sending is not None:
            self._send()
        elif not self.is_busy:
            connection.note_front_idle()
        return True

    def _answer_fetch(self, api: Api, asked: AskedFetch, offset: int) -> int:
        """Bytes of the batches that were written or are ``_sending`` now; 0: not here."""
        path, transport, connection = self._path, self._transport, self._connection
        assert transport is not None
        log, span = log_of(api, asked), None
        if log is None:
            return 0
        # What was written and is not sent yet must not be overtaken.
        if (
            path.sends_files
            and not connection.ssl_context
            and not transport.get_write_buffer_size()
        ):
            span = span_of(api, log, asked, offset)
        if span is not None and self._socket is None:
            self._socket = connection.second_socket()
        if span is not None and self._socket is not None:
            self._sending = begin_sending(api, log, span, self.next_request_id())
            return span.size_bytes
        answer = read_now(api, log, asked, offset, path.request_ids)
        if answer is None:
            return 0
        transport.writelines(answer)
        return len(answer[1])

    def _send(self) -> None:
        """As much as the socket takes; the rest when it takes more."""
        assert self._sending is not None
        assert self._socket is not None
        was_waiting = self._is_paused
        try:
            state = self._sending.send(self._socket)
        except (OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno in _UNSUPPORTED:
                self._path.sends_files = False
            self._cut_answer()
            return
        if state is SendState.COLD:
            self._is_paused = True
            self._path.stop_waiting(self._socket)
            self._connection.end_reader_watch()  # it waits for us now
            self._path.start(self._read_rest(self._sending))
            return
        if state is SendState.SOCKET_FULL:
            if not was_waiting:
                self._is_paused = True
                self._connection.begin_reader_watch()
                self._path.wait_until_writable(self._socket, self._send)
            return
        self._sending = None
        if was_waiting:
            self._path.stop_waiting(self._socket)
            self._connection.end_reader_watch()
            self._is_paused = False
            self.send_answers()
        else:
            self._connection.note_front_idle()

    async def _read_rest(self, sending: Sending) -> None:
        """Go on with what only the disk has, or end the connection."""
        is_read = False
        try:
            await sending.read_rest()
            is_read = True
        except KafkalogError as error:
            _log.warning("An answer was cut: its batches changed or are lost", error=str(error))
        finally:  # also where memory or the pool was missing
            if self._sending is sending and self._socket is not None:
                if is_read:
                    self._connection.begin_reader_watch()
                    self._path.wait_until_writable(self._socket, self._send)
                else:
                    self._cut_answer()

    def _cut_answer(self) -> None:
        """End the connection: of the rest the client cannot be told otherwise."""
        self._drop_socket()
        if self._transport is not None:
            self._transport.abort()

    def _drop_socket(self) -> None:
        """Close the second descriptor: the connection ends with its last one."""
        self._sending = None
        if self._socket is not None:
            self._path.stop_waiting(self._socket)
            self._socket.close()
            self._socket = None

    # ---- what has to wait

    def _wait(self, data: bytes) -> None:
        """Until what is in work was answered and taken; the rest stays in the socket."""
        self._waiting = data
        self._is_waiting = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _proceed(self) -> None:
        self._is_waiting = False
        data, self._waiting = self._waiting, b""
        self._take(data, len(data))
        transport, connection = self._transport, self._connection
        if self._is_waiting or transport is None:
            return
        connection.note_waited()
        if not self._has_ended:
            if not connection.is_reading_paused:
                transport.resume_reading()
        elif not self._has_work:
            connection.end_input()

    # ---- a body that comes in pieces

    def _receive(self, head: bytes, asked: AskedAppend, length: int, piece: memoryview) -> bool:
        """Whether it is received straight into its own memory, from now on."""
        if self._has_ended or self._path.view_of(asked) is None or not self._is_admitted(length):
            return False
        self._connection.note_front_request()
        self._head, self._asked = head, asked
        self._body = bytearray(length)
        self._filled = len(piece)
        self._body[: self._filled] = piece
        self._body_timer = self._path.call_later(_BODY_SECONDS, self._give_up_body)
        return True

    def _end_body(self) -> None:
        asked, body = self._asked, self._drop_body()
        assert asked is not None
        if not self._begin(self._head, asked, memoryview(body).toreadonly()):
            self._give(self._head, body)

    def _give_up_body(self) -> None:
        """It stopped: the ordinary way waits for the rest, as long as it may take."""
        self._give(self._head, self._drop_body()[: self._filled])

    def _drop_body(self) -> bytearray:
        """It is received no longer; what there was of it."""
        body, self._body = self._body, None
        assert body is not None
        assert self._body_timer is not None
        self._body_timer.cancel()
        release(self._path.api, len(body))
        return body

    def _give(self, head: bytes, body: bytearray) -> None:
        """A request that is aiohttp's, with its body or a part of it."""
        self._is_ordinary = True
        if self._has_work:
            self._wait(head + body)
            return
        self._give_head(head)
        self._take(body, len(body))

    # ---- answers

    def note_ended(self, *, closes: bool) -> None:
        """A request in work has its result; ``closes``: the connection ends with it."""
        self._is_closing |= closes
        self._answer_soon()

    def _answer_soon(self) -> None:
        if not self._is_to_be_answered:
            self._is_to_be_answered = True
            self._path.answer_soon(self)

    def send_answers(self) -> None:
        """Those whose turn it is, in one write."""
        self._is_to_be_answered = False
        transport, connection, in_work = self._transport, self._connection, self._in_work
        if transport is None or self._is_paused:
            return
        ends = self._is_closing or connection.is_finishing
        ends = ends or (self._has_ended and not self._is_waiting)
        answers = []
        while in_work and in_work[0].has_ended:
            append = in_work.popleft()
            answers.append(append.answer(closes=ends and not in_work))
        if answers:
            transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
            if ends and not in_work:
                connection.force_close()
                return
        if self._is_waiting and not self._is_paused:
            self._proceed()
        if not self.is_busy:
            connection.note_front_idle()
            if self._has_ended:
                connection.end_input()
        if self._waiting and not connection.is_busy:
            connection.begin_header_timer()
