"""Threads, and what they wait for. No thread is started in any other way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Thread(Protocol):
    """A started thread."""

    @property
    def name(self) -> str:
        """As given."""

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Whether it has ended."""

    def is_alive(self) -> bool:
        """Whether it is running."""


class Signal(Protocol):
    """A flag that one thread waits for and any thread sets; setting it twice has no more effect."""

    def set(self) -> None:
        """Wake the waiter, now or at its next wait."""

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until set, then clear; False on time-out."""


class Mutex(Protocol):
    """A plain lock, for the few data outside the single-writer rule."""

    def __enter__(self) -> object:
        """Acquire."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Release."""

    def acquire(self, *, timeout: float) -> bool:
        """Acquire within the time-out; whether it was acquired."""

    def release(self) -> None:
        """By the thread that acquired it."""


class Threads(Protocol):
    """Starts threads, and creates what they wait for."""

    def start(self, name: str, body: Callable[[], None], *, background: bool = False) -> Thread:
        """Run body on a new daemon thread. background: nice 15 on that thread."""

    def signal(self) -> Signal:
        """A new, unset signal."""

    def mutex(self) -> Mutex:
        """A new lock."""
