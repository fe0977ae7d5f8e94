"""Goal: a flow leads through few files, so that a reader can follow it (rule 5 of the house).
Method: a real daemon whose calls are traced; a number that is above its goal may only fall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.tools.flows import FLOWS, START, trace_flows

if TYPE_CHECKING:
    from tests.tools.flows import Trace


class Budget(NamedTuple):
    """How many it shall be, and how many it may be so far."""

    goal: int
    most: int


# Files that a flow leads through, as ``tests/tools/flows.py`` counts them.
BUDGETS = {
    "JSON produce": Budget(28, 27),
    "raw fetch": Budget(16, 11),
    "retention check": Budget(16, 16),
    "compaction": Budget(26, 25),
    START: Budget(32, 32),
}
# Of the same kind: how often the flow does what it shall do less often.
PLANS = Budget(3, 3)  # one of the log that keeps all, two of the one that deletes
TOPIC_LOOK_UPS = Budget(1, 1)
PATH_CUTS = Budget(0, 0)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    return trace_flows(tmp_path_factory.mktemp("flows") / "logs")


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_leads_through_few_files(traces: dict[str, Trace], flow: str) -> None:
    """Goal: at most its budget."""
    files = traces[flow].counted
    assert len(files) <= BUDGETS[flow].most, "\n".join(files)


def test_a_deletion_is_planned_rarely(traces: dict[str, Trace]) -> None:
    """Goal: once to know what is due, once by the writer."""
    assert 1 <= len(traces["retention check"].plans) <= PLANS.most, traces["retention check"].plans


@pytest.mark.parametrize("flow", ["JSON produce", "raw fetch"])
def test_the_topic_of_a_request_is_looked_up_once(traces: dict[str, Trace], flow: str) -> None:
    """Goal: one answer, which is passed on."""
    look_ups = traces[flow].topic_look_ups
    assert 1 <= len(look_ups) <= TOPIC_LOOK_UPS.most, look_ups


def test_an_append_cuts_no_path_apart(traces: dict[str, Trace]) -> None:
    """Goal: a log knows its directory; no request finds it out from a text."""
    cuts = traces["JSON produce"].path_cuts
    assert len(cuts) <= PATH_CUTS.most, cuts
    assert traces[START].path_cuts, "the tracer sees no cut at all"
