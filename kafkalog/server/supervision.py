"""The daemon as the service manager sees it (``Type=notify``), and its long-running tasks.

While the daemon loads or stops, ``Supervision`` reports the progress and extends the time-out in
every period; the running event loop feeds the watchdog. A load that makes no progress is not judged
here: the status line and ``/startupz`` show it. A stop extends the time-out by ``STOP_SECONDS`` at
most, so that a disk that hangs does not block the shutdown of the machine; the next start recovers
the rest. Without a service manager nothing runs.

A supervised task runs until it is cancelled. One that ends by itself has a defect; the daemon logs
it and stops. Files of access are read again when they change and at SIGHUP. ``show_loading`` prints
the progress of a start on a terminal, ``first_steps`` what comes next. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import structlog

from kafkalog.console.formatting import size
from kafkalog.env.systemd import monotonic_usec, usec
from kafkalog.server.api import Phase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from kafkalog.broker.values import Loading
    from kafkalog.env.systemd import ServiceManager
    from kafkalog.observe.terminal_line import TerminalLine


def supervised_task(
    coroutine: Coroutine[object, object, None],
    name: str,
    on_failure: Callable[[str, BaseException | None], None],
) -> asyncio.Task[None]:
    """Start it on the running loop; ``on_failure`` gets its name and its error, on the loop.

    None: it returned, which it must not either.
    """

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            on_failure(name, task.exception())

    task = asyncio.create_task(coroutine, name=name)
    task.add_done_callback(ended)
    return task


async def keep_files_current(
    refresh: Callable[[], Awaitable[Mapping[str, str]]],
    period_seconds: float | None,
    hang_up: asyncio.Event,
    supervision: Supervision,
) -> None:
    """Refresh at every period (None: there are no files) and when ``hang_up`` is set.

    Until it is cancelled. The refresh reports an error in a file, and returns what became of each;
    what it raises is a defect, and ends this. Who hung up reads in the log what was done.
    """
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(period_seconds):
                await hang_up.wait()
        is_asked_for = hang_up.is_set()
        hang_up.clear()
        if is_asked_for:
            supervision.reloading()
        try:
            outcomes = await refresh()
            if is_asked_for:
                _log.info("SIGHUP: looked for changed files of access and TLS", files=outcomes)
        finally:
            if is_asked_for:
                supervision.reloaded()


_SHOWN_EVERY_SECONDS = 0.2
# What the command line uses without --url: the client's DEFAULT_URL, which the server may not
# import. A test compares them.
CLIENT_URL = "http://127.0.0.1:8082"


async def show_loading(line: TerminalLine, loading: Callable[[], Loading]) -> None:
    """Redraw until it is cancelled, then erase. A start of less than a period shows nothing."""
    try:
        while True:
            await asyncio.sleep(_SHOWN_EVERY_SECONDS)
            line.show(loading_text(loading()))
    finally:
        line.show("")


def first_steps(url: str, log_dirs: Sequence[str], command: str) -> str:
    """For the person who started the daemon on a terminal: where data is, what to do next."""
    url = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    address = "" if url == CLIENT_URL else f" --url {url}"
    return (
        f"\n  Data     {', '.join(log_dirs)}\n"
        f"  Console  {url}/console\n"
        f"  Produce  echo hello | {command} produce greetings{address}\n\n"
    )


def loading_text(loading: Loading) -> str:
    """One line without its end."""
    if not loading.partitions:
        return "Reading the log directories"
    text = f"Loading logs: {loading.partitions_loaded}/{loading.partitions}"
    if loading.bytes_to_recover or loading.bytes_recovered:
        per_second = loading.bytes_recovered * 1000 // max(1, loading.elapsed_ms)
        text += f", recovered {size(loading.bytes_recovered)} at {size(per_second)}/s"
    left_ms = remaining_ms(loading)
    return text if left_ms is None else f"{text}, about {_duration(left_ms)} left"


def remaining_ms(loading: Loading) -> int | None:
    """The longer of two guesses: logs at the pace of logs, bytes known of at the pace of bytes.

    None as long as there is no pace. Logs differ in size, so it is a guess.
    """
    guesses = [
        loading.elapsed_ms * left // done
        for done, left in (
            (loading.partitions_loaded, loading.partitions - loading.partitions_loaded),
            (loading.bytes_recovered, loading.bytes_to_recover),
        )
        if done
    ]
    return max(guesses, default=None)


def _duration(duration_ms: int) -> str:
    seconds = -(-duration_ms // 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


_log = structlog.get_logger("kafkalog.server")
STOP_SECONDS = 600.0
_PERIOD_SECONDS = 1.0
# Many periods: a machine that pauses for a while is no reason to end a recovery.
_EXTENSION_SECONDS = 60.0
# Of the watchdog's time: two signs of life may be late or lost.
_WATCHDOG_SHARE = 1 / 3
# Sent once; the service manager waits for it.
_AWAITED = ("READY", "STOPPING")


class Supervision:
    """See the module. ``async with`` around everything that takes time."""

    def __init__(
        self,
        manager: ServiceManager,
        loading: Callable[[], Loading],
        on_failure: Callable[[str, BaseException | None], None],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """``on_failure``: see ``supervised_task``."""
        # constant after construction
        self._seconds = seconds
        self._manager = manager
        self._loading = loading
        self._on_failure = on_failure
        watchdog = manager.watchdog_seconds
        self._period_seconds = (
            _PERIOD_SECONDS
            if watchdog is None
            else min(_PERIOD_SECONDS, watchdog * _WATCHDOG_SHARE)
        )
        # owned by the event loop
        self._phase = Phase.STARTING
        self._stop_ends: float | None = None
        self._is_failure_logged = False
        self._is_defect_logged = False
        self._unsaid: dict[str, str] = {}  # of what is awaited
        self._told: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Supervision:
        if self._manager.is_there:
            self._told = supervised_task(self._keep_telling(), "supervision", self._on_failure)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._told is not None:
            self._told.cancel()
            await asyncio.wait([self._told])
        self._manager.close()

    def ready(self, url: str) -> None:
        """Clients are served."""
        self._phase = Phase.SERVING
        self._tell(READY="1", STATUS=f"Serving at {url}")

    def reloading(self) -> None:
        """The files of access are about to be read again. Nothing before it serves."""
        if self._phase is Phase.SERVING:
            self._tell(RELOADING="1", MONOTONIC_USEC=monotonic_usec())

    def reloaded(self) -> None:
        """They were."""
        if self._phase is Phase.SERVING:
            self._tell(READY="1")

    def stopping(self) -> None:
        """The daemon stops. May be called any number of times."""
        self._phase = Phase.STOPPING
        if self._stop_ends is None:
            self._stop_ends = self._seconds() + STOP_SECONDS
        self._tell(STOPPING="1", STATUS="Shutting down", **self._more_time())

    async def _keep_telling(self) -> None:
        """Say at every period what is to be said then."""
        while True:
            states = {} if self._manager.watchdog_seconds is None else {"WATCHDOG": "1"}
            states |= self._more_time()
            if self._phase is Phase.STARTING:
                states |= self._progress()
            if states or self._unsaid:  # what did not get through before
                self._tell(**states)
            await asyncio.sleep(self._period_seconds)

    def _more_time(self) -> dict[str, str]:
        is_asked_for = (
            self._phase is Phase.STARTING
            if self._stop_ends is None
            else self._seconds() < self._stop_ends
        )
        return {"EXTEND_TIMEOUT_USEC": usec(_EXTENSION_SECONDS)} if is_asked_for else {}

    def _progress(self) -> dict[str, str]:
        """How far the load is. A defect here costs the line alone, not what feeds the watchdog."""
        try:
            return {"STATUS": loading_text(self._loading())}
        except Exception as defect:  # noqa: BLE001 - as in the body of a thread
            if not self._is_defect_logged:
                self._is_defect_logged = True
                _log.critical("The progress of the load is unknown", exc_info=defect)
            return {}

    def _tell(self, **states: str) -> None:
        try:
            self._manager.notify(**{**self._unsaid, **states})
            self._unsaid = {}
        except OSError as error:
            self._unsaid |= {name: states[name] for name in _AWAITED if name in states}
            if not self._is_failure_logged:
                self._is_failure_logged = True
                _log.warning(
                    "The service manager cannot be notified", reason=str(error), states=states
                )
