"""Goal: the rules file means what its documentation says, and a fault names its line.
Method: texts as an operator writes them.
"""

from __future__ import annotations

import pytest

from kafkalog.broker.access_rules import (
    ALL_ALLOWED,
    AccessRules,
    Action,
    Resource,
    parse_access_rules,
)
from kafkalog.errors import ClusterAccessDenied, GroupAccessDenied, InvalidConfig

TOPIC, GROUP, CLUSTER = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER
EXAMPLE = """\
# effect  principal  actions     resource  pattern
allow     alice      read,write  topic     orders
allow     *          describe    topic     public-*

deny      alice      write       topic     orders-archive
allow     billing    read        group     billing-*
allow     ops        all         cluster          # and nothing else
allow     'Jane Doe' read        topic     *
"""


def test_the_documented_example() -> None:
    """Each line of the example does what it says."""
    rules = parse_access_rules(EXAMPLE)
    alice, ops, jane = (rules.rights_of(name) for name in ("alice", "ops", "Jane Doe"))
    assert alice.allow(Action.WRITE, TOPIC, "orders")
    assert alice.allow(Action.DESCRIBE, TOPIC, "orders")
    assert not alice.allow(Action.DELETE, TOPIC, "orders")
    assert not alice.allow(Action.WRITE, TOPIC, "orders2")
    assert alice.allow(Action.DESCRIBE, TOPIC, "public-1")
    assert not alice.allow(Action.READ, TOPIC, "public-1")
    assert rules.rights_of("billing").allow(Action.READ, GROUP, "billing-7")
    assert ops.allow(Action.CLUSTER, CLUSTER)
    assert not ops.allow(Action.READ, TOPIC, "orders")
    assert jane.allow(Action.READ, TOPIC, "anything")


def test_without_a_file_all_is_allowed_and_with_an_empty_one_nothing() -> None:
    """Default deny begins with the first rules file, even an empty one."""
    for resource in Resource:
        for action in Action:
            assert ALL_ALLOWED.rights_of("x").allow(action, resource, "any")
            assert not AccessRules().rights_of("x").allow(action, resource, "any")
    with pytest.raises(GroupAccessDenied, match="Not authorized: read group g"):
        AccessRules().rights_of("x").require(Action.READ, GROUP, "g")
    with pytest.raises(ClusterAccessDenied, match=r"Not authorized: alter cluster$"):
        AccessRules().rights_of("x").require(Action.ALTER, CLUSTER)


def test_a_denied_describe_is_not_brought_back_by_read() -> None:
    """Deny wins over what another right would bring."""
    rights = parse_access_rules("allow a read topic t\ndeny a describe topic t").rights_of("a")
    assert rights.allow(Action.READ, TOPIC, "t")
    assert not rights.allow(Action.DESCRIBE, TOPIC, "t")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("permit a read topic t", "begins with allow or deny"),
        ("allow a read topic", "takes a pattern"),
        ("allow a all cluster x", "takes no pattern"),
        ("allow a read", "a rule is:"),
        ("allow a read topic t u", "a rule is:"),
        ("allow a fetch topic t", "'fetch' is not an action; known are: read, write"),
        ("allow a read, topic t", "'' is not an action"),
        ("allow a read queue t", "'queue' is not a resource"),
        ("allow a read topic a*b", "one \\* at its end"),
        ("allow a read topic a**", "one \\* at its end"),
        ("allow a read topic ''", "one \\* at its end"),
        ("allow a* read topic t", "a principal is a name or \\*"),
        ("allow 'a read topic t", "No closing quotation"),
    ],
)
def test_a_fault_names_its_line(line: str, fault: str) -> None:
    """An operator finds the fault."""
    with pytest.raises(InvalidConfig, match=f"^line 3: .*{fault}"):
        parse_access_rules(f"# rules\nallow a read topic t\n{line}\n")
