"""Authorized: the operation layer as one principal sees it.

Each public method of an operation class declares beside itself which right it needs (``requires``),
or that it needs none (``open_to_all``). ``authorized`` makes a view of such an object: the same
methods, each after its check. A method without a declaration cannot be called through a view, and a
test names it. Without authentication no view is made, so that it costs nothing. Any thread.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from kafkalog.broker.access_rules import CLUSTER_NAME, Action, Resource
from kafkalog.format.topic_names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.broker.access_rules import Rights
    from kafkalog.log.unified_log import UnifiedLog

F = TypeVar("F", bound="Callable[..., object]")
T = TypeVar("T")

_NEED = "__kafkalog_need__"
_CHECKED = "__kafkalog_checked_class__"


@dataclass(frozen=True, slots=True)
class Need:
    """What a method needs, as its decorator. ``action`` None: nothing.

    ``argument`` names the parameter that holds the topic or group: its name, or a log, partition or
    consumer of it. With ``is_listing`` everybody may call it, and sees what he has the right on;
    ``is_internal`` is for no principal. ``sees`` names a parameter that gets, from the view, which
    topics the principal may describe; without a view it keeps its default.
    """

    action: Action | None = None
    resource: Resource = Resource.CLUSTER
    argument: str = ""
    sees: str = ""
    is_listing: bool = False
    is_internal: bool = False

    def __call__(self, method: F) -> F:
        """Declare it beside the method."""
        setattr(method, _NEED, self)
        return method


def requires(action: Action, resource: Resource, argument: str = "", *, sees: str = "") -> Need:
    """The method needs this right on what ``argument`` names, or on the cluster."""
    assert bool(argument) is (resource is not Resource.CLUSTER)
    return Need(action, resource, argument, sees)


def lists(resource: Resource) -> Need:
    """The method answers a list of names, or of what has one: those that may be described stay."""
    return Need(Action.DESCRIBE, resource, is_listing=True)


open_to_all = Need()
"""The method needs no right."""

internal = Need(is_internal=True)
"""The method is the daemon's own: no view has it."""


def operation_class(*open_fields: str) -> Callable[[type[T]], type[T]]:
    """Of a class whose objects may be seen through a view, also as a field of such a one.

    ``open_fields``: plain values among its attributes that everybody may see.
    """

    def mark(kind: type[T]) -> type[T]:
        setattr(kind, _CHECKED, frozenset(open_fields))
        return kind

    return mark


def need_of(method: object) -> Need | None:
    """What a method, or a property's, needs; None when it says nothing."""
    if isinstance(method, property):
        method = method.fget
    need = getattr(method, _NEED, None)
    return need if isinstance(need, Need) else None


def authorized(operations: T, rights: Rights) -> T:
    """``operations`` as a principal with these rights sees them."""
    assert hasattr(type(operations), _CHECKED)
    return cast("T", _View(operations, rights))


class _Named(Protocol):
    """What a listing may hold beside plain names."""

    @property
    def name(self) -> str:
        """Of the topic or group."""


class _OfGroup(Protocol):
    """A consumer, as far as its rights go."""

    @property
    def group(self) -> str:
        """Its group's name."""


class _View:
    """See ``authorized``. A method is wrapped when it is first asked for."""

    def __init__(self, operations: object, rights: Rights) -> None:
        # constant after construction
        self._operations = operations
        self._rights = rights

    def __getattr__(self, name: str) -> object:
        """AttributeError as of the object itself; AssertionError for what has no rule."""
        operations, rights = self._operations, self._rights
        kind = type(operations)
        declared = getattr(kind, name, None)
        need = need_of(declared)
        if isinstance(declared, property):
            assert need == Need(), f"{kind.__name__}.{name} has no rule of access"
            return getattr(operations, name)
        assert need is None or not need.is_internal, f"{kind.__name__}.{name} is internal"
        value = getattr(operations, name)
        seen = self._field(name, value) if need is None else _checked(value, need, rights)
        self.__dict__[name] = seen
        return seen

    def _field(self, name: str, value: object) -> object:
        """An attribute of the object: further operations, or a plain value."""
        if hasattr(type(value), _CHECKED):
            return _View(value, self._rights)
        kind = type(self._operations)
        allowed = name in getattr(kind, _CHECKED)
        assert allowed, f"{kind.__name__}.{name} has no rule of access"
        return value


def _checked(method: Callable[..., object], need: Need, rights: Rights) -> Callable[..., object]:
    """The method behind its check, which comes before anything of it runs."""
    action = need.action
    if action is None:
        return method
    if need.is_listing:

        @functools.wraps(method)
        def listing(*args: object, **kwargs: object) -> object:
            found = cast("list[str | _Named]", method(*args, **kwargs))
            return [
                each
                for each in found
                if rights.allow(action, need.resource, each if isinstance(each, str) else each.name)
            ]

        return listing
    position = (
        list(inspect.signature(method).parameters).index(need.argument) if need.argument else 0
    )

    @functools.wraps(method)
    def checked(*args: object, **kwargs: object) -> object:
        name = CLUSTER_NAME
        if need.argument:
            argument = args[position] if position < len(args) else kwargs[need.argument]
            name = _name_of(argument, need.resource)
        rights.require(action, need.resource, name)
        if need.sees:
            kwargs[need.sees] = functools.partial(rights.allow, Action.DESCRIBE, Resource.TOPIC)
        return method(*args, **kwargs)

    return checked


def _name_of(argument: object, resource: Resource) -> str:
    """The name of the topic or group that an argument is or belongs to."""
    if isinstance(argument, str):
        return argument
    if resource is Resource.GROUP:
        return cast("_OfGroup", argument).group
    if isinstance(argument, TopicPartition):
        return argument.topic
    return cast("UnifiedLog", argument).topic_partition.topic
