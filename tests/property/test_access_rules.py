"""Goal: any set of rules decides as the documented sentences say, and nothing is allowed by chance.
Method: random rules against a twin that reads the rules again for each question.
"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from kafkalog.broker.access_rules import (
    EVERYBODY,
    AccessRule,
    AccessRules,
    Action,
    Resource,
    parse_access_rules,
)
from kafkalog.errors import InvalidConfig, TopicAccessDenied

PRINCIPALS = ("alice", "bob")
NAMES = ("a", "ab", "abc", "b", "ba")


@st.composite
def some_rule(draw: st.DrawFn) -> AccessRule:
    resource = draw(st.sampled_from(Resource))
    is_cluster = resource is Resource.CLUSTER
    is_prefix = not is_cluster and draw(st.booleans())
    pattern = draw(st.sampled_from(("", *NAMES) if is_prefix else NAMES))
    return AccessRule(
        draw(st.booleans()),
        draw(st.sampled_from((*PRINCIPALS, EVERYBODY))),
        draw(st.frozensets(st.sampled_from(Action), min_size=1, max_size=3)),
        resource,
        "" if is_cluster else pattern,
        is_prefix,
    )


def line_of(rule: AccessRule) -> str:
    effect = "allow" if rule.is_allow else "deny"
    actions = ",".join(action.value for action in rule.actions)
    pattern = "" if rule.resource is Resource.CLUSTER else rule.pattern + "*" * rule.is_prefix
    return f"{effect} {rule.principal} {actions} {rule.resource.value} {pattern}"


def twin_allows(
    rules: list[AccessRule], principal: str, action: Action, resource: Resource, name: str
) -> bool:
    """The sentences of the module's text, one after the other."""

    def matching(wanted: Action, *, is_allow: bool) -> bool:
        return any(
            rule.is_allow is is_allow
            and rule.principal in (principal, EVERYBODY)
            and wanted in rule.actions
            and rule.resource is resource
            and (
                rule.pattern == name
                or (rule.is_prefix and name[: len(rule.pattern)] == rule.pattern)
            )
            for rule in rules
        )

    if matching(action, is_allow=False):
        return False
    if matching(action, is_allow=True):
        return True
    if action is Action.WRITE and resource is Resource.CLUSTER:
        # Whether there is a name, known to the rules or not, that the principal may write to.
        names = {rule.pattern for rule in rules} | {rule.pattern + "\0" for rule in rules}
        return any(
            twin_allows(rules, principal, Action.WRITE, Resource.TOPIC, each) for each in names
        )
    return action is Action.DESCRIBE and any(
        matching(strong, is_allow=True) and not matching(strong, is_allow=False)
        for strong in (Action.READ, Action.WRITE, Action.DELETE, Action.ALTER, Action.CLUSTER)
    )


@given(st.lists(some_rule(), max_size=8))
def test_rules_decide_as_their_twin(rules: list[AccessRule]) -> None:
    parsed = AccessRules(tuple(rules))
    for principal in PRINCIPALS:
        rights = parsed.rights_of(principal)
        for action in Action:
            for resource in Resource:
                for name in ("",) if resource is Resource.CLUSTER else NAMES:
                    expected = twin_allows(rules, principal, action, resource, name)
                    assert rights.allow(action, resource, name) is expected
                    assert rights.allow(action, resource, name) is expected


@given(st.lists(some_rule(), max_size=8))
def test_written_rules_are_read_back(rules: list[AccessRule]) -> None:
    text = "\n".join(f"{line_of(rule)}  # why" for rule in rules)
    assert parse_access_rules(text).rules == tuple(rules)


@given(st.text(alphabet=st.sampled_from("alowdeny *#\"',-rc\n\t topic\\\x00é"), max_size=80))
def test_any_text_is_rules_or_refused_with_its_line(text: str) -> None:
    try:
        parse_access_rules(text)
    except InvalidConfig as error:
        fault = error
    else:
        return
    assert fault.message.startswith(f"line {fault.details['line']}: ")


@given(st.text(max_size=400))
def test_a_refusal_never_depends_on_more_than_the_name(name: str) -> None:
    with pytest.raises(TopicAccessDenied) as refused:
        AccessRules().rights_of("x").require(Action.READ, Resource.TOPIC, name)
    assert len(refused.value.message) <= 340
