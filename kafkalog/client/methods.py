"""An operation written once as steps becomes a method of both clients.

    class Operations:
        list_topics = Method(administration.list_topics)

``Client.list_topics(...)`` gives the result, ``AsyncClient.list_topics(...)`` an awaitable of it,
with the parameters and the docstring of the function; type checkers see both. Of the class it is
the function itself, for ``help`` and for ``run``.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkalog.client.conversation import Steps

P = ParamSpec("P")
T = TypeVar("T")


class Blocking(ABC):
    """A client whose calls return when they are done."""

    @abstractmethod
    def run(self, steps: Steps[T]) -> T:
        """Carry out an operation. Raises ClientError."""


class Awaiting(ABC):
    """A client whose calls are awaited."""

    @abstractmethod
    async def run(self, steps: Steps[T]) -> T:
        """Carry out an operation. Raises ClientError."""


class Method(Generic[P, T]):
    """See the module."""

    def __init__(self, steps: Callable[P, Steps[T]]) -> None:
        self._steps = steps

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Steps[T]]: ...

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Awaitable[T]]: ...

    def __get__(self, client: Blocking | Awaiting | None, owner: type) -> Any:
        if client is None:
            return self._steps

        @functools.wraps(self._steps)
        def method(*args: P.args, **kwargs: P.kwargs) -> object:
            return client.run(self._steps(*args, **kwargs))

        return method
