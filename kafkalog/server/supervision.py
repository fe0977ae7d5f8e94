"""Supervision: the daemon's life as the service manager sees it (``Type=notify``).

While it loads and while it stops, it says how far it is and asks for more time at every period, so
that no recovery is cut off by a time-out; the loop's own turning feeds the watchdog. Whether a load
still moves is not judged here: the manager's status line and ``/startupz`` show it. A stop asks for
``STOP_SECONDS`` at most, so that a disk that hangs does not keep a machine from going down: what a
stop leaves undone, the next start recovers. Owned by the event loop; without a service manager
nothing runs.
"""

from __future__ import annotations

import asyncio
import enum
import time
from typing import TYPE_CHECKING

import structlog

from kafkalog.env.systemd import monotonic_usec, usec
from kafkalog.server.lasting import lasting_task
from kafkalog.server.load_display import loading_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.systemd import ServiceManager
    from kafkalog.manager.values import Loading

_log = structlog.get_logger("kafkalog.server")
STOP_SECONDS = 600.0
_PERIOD_SECONDS = 1.0
# Many periods: a machine that stands still for a while is no reason to end a recovery.
_EXTENSION_SECONDS = 60.0
# Of the watchdog's time: two signs of life may be late or lost.
_WATCHDOG_SHARE = 1 / 3
# Said once, and waited for by whoever listens.
_AWAITED = ("READY", "STOPPING")


class _Stage(enum.Enum):
    LOADING = "loading"
    SERVING = "serving"
    STOPPING = "stopping"


class Supervision:
    """See the module. ``async with`` around everything that takes time."""

    def __init__(
        self,
        manager: ServiceManager,
        loading: Callable[[], Loading],
        died: Callable[[str, BaseException | None], None],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """``died``: see ``lasting_task``."""
        # constant after construction
        self._seconds = seconds
        self._manager = manager
        self._loading = loading
        self._died = died
        watchdog = manager.watchdog_seconds
        self._period_seconds = (
            _PERIOD_SECONDS
            if watchdog is None
            else min(_PERIOD_SECONDS, watchdog * _WATCHDOG_SHARE)
        )
        # owned by the event loop
        self._stage = _Stage.LOADING
        self._stop_ends: float | None = None
        self._is_failure_told = False
        self._is_defect_told = False
        self._unsaid: dict[str, str] = {}  # of what is awaited
        self._told: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Supervision:
        if self._manager.is_there:
            self._told = lasting_task(self._keep_telling(), "supervision", self._died)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._told is not None:
            self._told.cancel()
            await asyncio.wait([self._told])
        self._manager.close()

    def ready(self, url: str) -> None:
        """Clients are served."""
        self._stage = _Stage.SERVING
        self._tell(READY="1", STATUS=f"Serving at {url}")

    def reloading(self) -> None:
        """The files of access are about to be read again. Nothing before it serves."""
        if self._stage is _Stage.SERVING:
            self._tell(RELOADING="1", MONOTONIC_USEC=monotonic_usec())

    def reloaded(self) -> None:
        """They were."""
        if self._stage is _Stage.SERVING:
            self._tell(READY="1")

    def stopping(self) -> None:
        """No more is begun; also for a stop of its own accord. Any number of times."""
        self._stage = _Stage.STOPPING
        if self._stop_ends is None:
            self._stop_ends = self._seconds() + STOP_SECONDS
        self._tell(STOPPING="1", STATUS="Shutting down", **self._more_time())

    async def _keep_telling(self) -> None:
        while True:
            self._tell_again()
            await asyncio.sleep(self._period_seconds)

    def _tell_again(self) -> None:
        """What is said at every period, and what did not get through before."""
        states = {} if self._manager.watchdog_seconds is None else {"WATCHDOG": "1"}
        states |= self._more_time()
        if self._stage is _Stage.LOADING:
            states |= self._progress()
        if states or self._unsaid:
            self._tell(**states)

    def _more_time(self) -> dict[str, str]:
        is_asked_for = (
            self._stage is _Stage.LOADING
            if self._stop_ends is None
            else self._seconds() < self._stop_ends
        )
        return {"EXTEND_TIMEOUT_USEC": usec(_EXTENSION_SECONDS)} if is_asked_for else {}

    def _progress(self) -> dict[str, str]:
        """How far the load is. A defect here costs the line alone, not what feeds the watchdog."""
        try:
            return {"STATUS": loading_text(self._loading())}
        except Exception as defect:  # noqa: BLE001 - as in the body of a thread
            if not self._is_defect_told:
                self._is_defect_told = True
                _log.critical("How far the load is cannot be told", exc_info=defect)
            return {}

    def _tell(self, **states: str) -> None:
        try:
            self._manager.tell(**{**self._unsaid, **states})
            self._unsaid = {}
        except OSError as error:
            self._unsaid |= {name: states[name] for name in _AWAITED if name in states}
            if not self._is_failure_told:
                self._is_failure_told = True
                _log.warning("The service manager cannot be told", reason=str(error), states=states)
