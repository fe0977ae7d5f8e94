"""Access rules: which principal may do what to which topic, group, sink or the daemon itself.

A rules file has one rule a line::

    # effect  principal  actions     resource  pattern
    allow     alice      read,write  topic     orders
    allow     *          describe    topic     public-*
    deny      alice      write       topic     orders-archive
    allow     billing    read        group     billing-*
    allow     spark      write       sink      daily-*
    allow     ops        all         cluster

Effect is ``allow`` or ``deny``; the principal a name or ``*`` for everybody; actions are words
joined by commas, or ``all``; a pattern is a name, or a prefix that ends in ``*``. The cluster takes
none, as there is one. Words with blanks are quoted, ``#`` begins a comment.

A deny wins over every allow, and what no rule allows is denied. A right to read, write, delete or
alter brings the right to describe, as in Kafka, unless that is denied. A right to write to some
topic brings the right to write to the cluster, which is Kafka's idempotent write (KIP-679): to get
producer ids. Pure; any thread.
"""

from __future__ import annotations

import enum
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kafkalog.errors import (
    ClusterAccessDenied,
    GroupAccessDenied,
    InvalidConfig,
    SinkAccessDenied,
    TopicAccessDenied,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_E = TypeVar("_E", bound=enum.Enum)

EVERYBODY = "*"
# Decisions that are remembered for one principal; beyond, they are decided again.
_REMEMBERED = 8192


class Action(enum.Enum):
    """What a principal may be allowed to do: the words of the access rules."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER = "cluster"  # operate the daemon


class Resource(enum.Enum):
    """What the action is about."""

    TOPIC = "topic"
    GROUP = "group"
    SINK = "sink"  # by its query; Kafka's transactional id
    CLUSTER = "cluster"


CLUSTER_NAME = ""
"""The name of the one resource of its kind."""

_DENIED = {
    Resource.TOPIC: TopicAccessDenied,
    Resource.GROUP: GroupAccessDenied,
    Resource.SINK: SinkAccessDenied,
    Resource.CLUSTER: ClusterAccessDenied,
}
_BRINGS_DESCRIBE = (Action.READ, Action.WRITE, Action.DELETE, Action.ALTER, Action.CLUSTER)


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One line. ``pattern`` is a literal name, or a prefix without its ``*``."""

    is_allow: bool
    principal: str
    actions: frozenset[Action]
    resource: Resource
    pattern: str
    is_prefix: bool

    def speaks_of(self, action: Action, resource: Resource, name: str) -> bool:
        """Whether the rule decides about this act, for any principal."""
        if not self.is_of(action, resource):
            return False
        return name.startswith(self.pattern) if self.is_prefix else name == self.pattern

    def is_of(self, action: Action, resource: Resource) -> bool:
        """Whether the rule decides about this act on resources of some name."""
        return action in self.actions and resource is self.resource

    def covers(self, other: AccessRule) -> bool:
        """Whether every name of the other rule's pattern is one of this pattern."""
        if self.is_prefix:
            return other.pattern.startswith(self.pattern)
        return not other.is_prefix and other.pattern == self.pattern


class Rights:
    """What one principal may do. Immutable but for what it remembers."""

    def __init__(self, principal: str, rules: Iterable[AccessRule]) -> None:
        # constant after construction
        self.principal = principal
        mine = [rule for rule in rules if rule.principal in (principal, EVERYBODY)]
        self._allows = tuple(rule for rule in mine if rule.is_allow)
        self._denies = tuple(rule for rule in mine if not rule.is_allow)
        # any thread: a lost entry is only decided again
        self._decided: dict[tuple[Action, Resource, str], bool] = {}

    def allow(self, action: Action, resource: Resource, name: str = CLUSTER_NAME) -> bool:
        """Whether the rules let the principal do this."""
        act = (action, resource, name)
        decision = self._decided.get(act)
        if decision is None:
            decision = self._decide(action, resource, name)
            if len(self._decided) >= _REMEMBERED:
                self._decided.clear()
            self._decided[act] = decision
        return decision

    def require(self, action: Action, resource: Resource, name: str = CLUSTER_NAME) -> None:
        """AccessDenied unless it is allowed: the same whether the topic or group exists or not."""
        if self.allow(action, resource, name):
            return
        what = f"{resource.value} {name[:300]}" if name else resource.value
        raise _DENIED[resource](
            f"Not authorized: {action.value} {what}",
            action=action.value,
            resource=resource.value,
            name=name[:300] or None,
        )

    def _decide(self, action: Action, resource: Resource, name: str) -> bool:
        if self._is_denied(action, resource, name):
            return False
        if self._is_allowed(action, resource, name):
            return True
        if action is Action.DESCRIBE:
            return any(
                self._is_allowed(stronger, resource, name)
                and not self._is_denied(stronger, resource, name)
                for stronger in _BRINGS_DESCRIBE
            )
        is_idempotent_write = action is Action.WRITE and resource is Resource.CLUSTER
        return is_idempotent_write and self._writes_to_some_topic()

    def _writes_to_some_topic(self) -> bool:
        """Whether an allow to write to topics is left that no deny takes back whole."""
        denies = [rule for rule in self._denies if rule.is_of(Action.WRITE, Resource.TOPIC)]
        return any(
            rule.is_of(Action.WRITE, Resource.TOPIC)
            and not any(deny.covers(rule) for deny in denies)
            for rule in self._allows
        )

    def _is_allowed(self, action: Action, resource: Resource, name: str) -> bool:
        return any(rule.speaks_of(action, resource, name) for rule in self._allows)

    def _is_denied(self, action: Action, resource: Resource, name: str) -> bool:
        return any(rule.speaks_of(action, resource, name) for rule in self._denies)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """A whole file."""

    rules: tuple[AccessRule, ...] = ()

    def rights_of(self, principal: str) -> Rights:
        """Everything that is allowed to one principal."""
        return Rights(principal, self.rules)


ALL_ALLOWED = AccessRules(
    tuple(
        AccessRule(True, EVERYBODY, frozenset(Action), resource, "", is_prefix=True)
        for resource in Resource
    )
)
"""Without a rules file every authenticated principal may do everything."""


def parse_access_rules(text: str) -> AccessRules:
    """The rules of a file's text; InvalidConfig names the line of the first fault."""
    rules = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            words = shlex.split(line, comments=True)
            if words:
                rules.append(_parse_rule(words))
        except ValueError as error:
            raise InvalidConfig(f"line {number}: {error}", line=number) from error
    return AccessRules(tuple(rules))


def _parse_rule(words: list[str]) -> AccessRule:
    """ValueError says what is wrong with the line."""
    if len(words) not in (4, 5):
        raise ValueError("a rule is: allow|deny principal actions topic|group|sink|cluster pattern")
    effect, principal, actions, kind, *patterns = words
    if effect not in ("allow", "deny"):
        raise ValueError(f"a rule begins with allow or deny, not '{effect}'")
    if principal != EVERYBODY and (not principal or EVERYBODY in principal):
        raise ValueError(f"a principal is a name or *, not '{principal}'")
    resource = _word(Resource, kind, "a resource")
    if (resource is Resource.CLUSTER) == bool(patterns):
        expected = "no pattern" if patterns else "a pattern: a name, a prefix* or *"
        raise ValueError(f"'{kind}' takes {expected}")
    pattern = patterns[0] if patterns else CLUSTER_NAME
    is_prefix = pattern.endswith("*")
    if is_prefix:
        pattern = pattern[:-1]
    if "*" in pattern or (resource is not Resource.CLUSTER and not pattern and not is_prefix):
        raise ValueError("a pattern is a name, or a prefix with one * at its end")
    named = [] if actions == "all" else actions.split(",")
    allowed = frozenset(_word(Action, each, "an action") for each in named) or frozenset(Action)
    return AccessRule(effect == "allow", principal, allowed, resource, pattern, is_prefix)


def _word(kind: type[_E], text: str, what: str) -> _E:
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(str(each.value) for each in kind)
        raise ValueError(f"'{text}' is not {what}; known are: {known}") from None
