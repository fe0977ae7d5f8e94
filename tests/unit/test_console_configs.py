"""Goal: the configs' page tells what is set beside the defaults; about tells whose work is here.
Method: a simulated manager with one topic config; the views beside the operations' entries.
"""

from __future__ import annotations

import pytest

from kafkalog import __version__
from kafkalog.broker.values import ConfigChange
from kafkalog.console.assets import all_assets
from kafkalog.console.views.about import about_view
from kafkalog.console.views.configs import broker_configs_view, topic_configs_view
from kafkalog.errors import UnknownTopic
from tests.unit.test_console_views import page_of
from tests.unit.test_retention import started


def test_a_topic_beside_its_defaults() -> None:
    """Goal: what is set is shown, with the default that it covers; the rest on demand.
    Method: a topic with one config; both lists, and a search in each.
    """
    sim = started()
    sim.operations.topics.create("t", 1, {"retention.ms": "600000"})
    view = topic_configs_view(sim.operations, "t", "", is_all=False)
    (row,) = view.configs
    assert (row.name, row.value, row.default) == ("retention.ms", "600000", "604800000")
    assert row.source == "DYNAMIC_TOPIC_CONFIG"
    assert not row.is_default
    assert view.set_count == 1
    assert page_of(view).count("604800000") >= 1
    every = topic_configs_view(sim.operations, "t", "", is_all=True)
    entries = sim.operations.topics.describe("t").configs
    assert [(each.name, each.value) for each in every.configs] == [
        (each.name, each.value) for each in entries
    ]
    assert every.total == len(entries) == view.total
    found = topic_configs_view(sim.operations, "t", "segment.", is_all=True)
    assert {each.name for each in found.configs} >= {"segment.bytes", "segment.ms"}
    assert all("segment." in each.name for each in found.configs)
    none = topic_configs_view(sim.operations, "t", "<b>", is_all=False)
    assert "No config of such a name is set." in page_of(none)
    with pytest.raises(UnknownTopic):
        topic_configs_view(sim.operations, "none", "", is_all=False)


def test_the_daemon_beside_its_defaults() -> None:
    """A dynamic config of the daemon is shown as set, and over what."""
    sim = started()
    before = broker_configs_view(sim.operations, "", is_all=False)
    sim.operations.alter_broker_configs([ConfigChange("log.retention.ms", "1000")])
    after = broker_configs_view(sim.operations, "", is_all=False)
    (row,) = [each for each in after.configs if each not in before.configs]
    assert (row.name, row.value) == ("log.retention.ms", "1000")
    assert (
        row.chain[0].source == "DYNAMIC_DEFAULT_BROKER_CONFIG" or row.source == row.chain[0].source
    )
    assert not row.is_read_only
    every = broker_configs_view(sim.operations, "", is_all=True)
    assert len(every.configs) == every.total == len(sim.operations.describe_broker_configs())
    for view in (before, after, every):
        page_of(view)


def test_about() -> None:
    """Version, and of every vendored file its project, licence and digest."""
    view = about_view(started().operations)
    assert view.version == __version__
    assert {each.name for each in view.vendored} == {"htmx.org", "uplot"}
    for package in view.vendored:
        assert package.licence_address.startswith("/console/assets/")
        for name, sha256 in package.files.items():
            assert all_assets()[name].sha256 == sha256
    html = page_of(view)
    assert "0BSD" in html
    assert f"{__version__}, licence Apache-2.0" in html
