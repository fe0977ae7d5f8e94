"""Goal: a page says "unknown" or "at least" of what it cannot know, and leads to what to do.
Method: managers on a simulated disk, one of whose two log directories fails.
"""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from kafkalog.console.formatting import timestamp
from kafkalog.console.views.daemon import log_dirs_view
from kafkalog.console.views.overview import overview_view
from kafkalog.console.views.retention import retentions_view
from kafkalog.console.views.topics import TopicOrder, pick_topic_view, topic_view, topics_view
from tests.cleaning_daemon import keyed_batch
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import batch_of
from tests.unit.test_console_threads import BROWSER, Edge
from tests.unit.test_console_views import page_of
from tests.unit.test_retention import started

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from kafkalog.server.api import Api
    from tests.sim.sim_manager import SimManager


def half_offline() -> SimManager:
    """half has a partition in each directory, lost none in the one that is served."""
    sim = started()
    for name, partitions in (("half", 2), ("lost", 1), ("whole", 1)):
        sim.operations.topics.create(name, partitions)
    for name, partition in (("half", 0), ("half", 1), ("lost", 0), ("whole", 0)):
        assert sim.produce(name, keyed_batch(("k", "v")), partition=partition).error is None
    sim.clock.advance_ms(60_000)  # records are counted, their oldest timestamps read
    lost = sim.operations.partition_log("lost", 0).parent_dir
    assert sim.operations.partition_log("whole", 0).parent_dir != lost
    sim.manager.logs.unit_at(lost).log_dir.take_offline("EIO")
    return sim


def rows_of(html: str) -> dict[str, str]:
    """The text of each row of the first table, by the name of its topic."""
    body = html.partition("<tbody>")[2].partition("</tbody>")[0]
    texts = (" ".join(re.sub("<[^>]+>", " ", row).split()) for row in body.split("</tr>"))
    return {text.split()[0]: text for text in texts if text}


def test_what_is_not_served_is_unknown_and_not_empty() -> None:
    sim = half_offline()
    half, lost, _ = topics_view(sim.operations, "", TopicOrder.NAME, 1).topics
    assert (half.partitions_unserved, half.records, half.offsets) == (1, 1, 1)
    assert (lost.partitions_unserved, lost.size_bytes, lost.offsets) == (1, None, None)
    assert (lost.records, lost.oldest_timestamp_ms) == (None, None)
    shown = rows_of(page_of(topics_view(sim.operations, "", TopicOrder.SIZE, 1)))
    assert list(shown)[-1] == "lost"
    assert shown["lost"].startswith("lost 1 not served 1 unknown unknown ")
    assert "empty" not in shown["lost"]
    assert shown["half"].startswith("half 1 not served 2 at least 1 at least ")
    assert shown["half"].count("at least") == 3  # records, bytes, age
    assert "unknown" not in shown["whole"]
    assert "at least" not in shown["whole"]
    retained = rows_of(page_of(retentions_view(sim.operations, "", 1)))
    assert "unknown unknown unknown" in retained["lost"]  # oldest, size, what is over a limit
    picked = rows_of(page_of(pick_topic_view(sim.operations, "", 1)))
    assert picked["lost"] == "lost 1 unknown unknown"
    for sort in TopicOrder:
        assert topics_view(sim.operations, "", sort, 1).total == 3


def test_the_first_page_leaves_out_no_topic_that_is_not_served() -> None:
    sim = half_offline()
    view = overview_view(sim.operations)
    assert {each.name: each.size_bytes is None for each in view.largest_topics} == {
        "half": False,
        "whole": False,
        "lost": True,
    }
    assert view.topics_unserved == 2
    html = page_of(view)
    assert "not all is known of 2 topics with partitions that are not served" in html
    largest = rows_of(html.partition('aria-label="Largest topics"')[2])
    assert largest["lost"].startswith("lost unknown")
    assert "half at least" in largest["half"]
    assert "<dt>Bytes on disk</dt><dd>at least <data" in html


def test_a_disk_is_not_filling_only_when_that_is_known() -> None:
    sim = half_offline()  # a minute after its start
    view = log_dirs_view(sim.operations)
    assert [(each.is_filling, each.full_in_ms) for each in view.log_dirs] == [(None, None)] * 2
    assert "not filling" not in page_of(view)
    assert page_of(view).count('class="num">unknown') == 2 + 4  # offline: four more figures
    for _ in range(11):
        sim.disk.capacity_bytes += 1_000_000
        sim.clock.advance_ms(60_000)
    for page in (log_dirs_view(sim.operations), overview_view(sim.operations)):
        assert {each.path: each.is_filling for each in page.log_dirs} == {
            "/data/a": None,
            "/data/b": False,
        }
        assert page_of(page).count("not filling") == 1


def test_a_partition_of_an_offline_directory_names_the_file_and_the_runbook() -> None:
    """It said 'Try again in some seconds', of a directory that is offline until a restart."""
    edge = Edge(is_control_held=False)
    path = edge.sim.operations.partition_log("t", 0).parent_dir
    edge.sim.disk.faults.add(
        Fault(error=errno.EPERM, kinds=frozenset({"write"}), path_contains=f"{path}/t-0", times=9)
    )
    with capture_logs() as lines:
        edge.sim.produce("t", batch_of("v"), partition=0)
    (line,) = [each for each in lines if each["event"] == "log_dir_offline"]
    assert line["file"].startswith(f"{path}/t-0/")

    async def story(edge: Edge, _: Api, client: ClientSession) -> None:
        address = f"{edge.url}/console/topics/t/partitions/0"
        async with client.get(address, headers=BROWSER) as answer:
            assert answer.status == 503
            html = await answer.text()
        assert f"simulated fault ({line['file']})" in html
        assert "/console/runbooks/KafkalogLogDirOffline" in html
        assert "Try again" not in html

    edge.run(story)
    assert "/console/runbooks/KafkalogPartitionsOffline" in page_of(
        topic_view(edge.sim.operations, "t", 1)
    )


def test_what_topics_have_in_counts_since_the_start() -> None:
    """'In, last hour: nothing' stood beside what was appended before a restart."""
    sim = started().with_topic("t", 1)
    sim.clock.advance_ms(12 * 60_000)
    topics, first = (
        topics_view(sim.operations, "", TopicOrder.NAME, 1),
        overview_view(sim.operations),
    )
    assert topics.traffic_since_ms == first.traffic_since_ms
    assert 11 * 60_000 < topics.now_ms - topics.traffic_since_ms <= 12 * 60_000
    since = timestamp(topics.traffic_since_ms)[11:16]
    assert page_of(topics).count(f"In, since {since} UTC") == 2  # the head, and a phone's label
    assert page_of(first).count(f"Bytes in, since {since} UTC") == 2
    sim.clock.advance_ms(60 * 60_000)
    assert "In, last hour" in page_of(topics_view(sim.operations, "", TopicOrder.NAME, 1))
    assert "Bytes in, last hour" in page_of(overview_view(sim.operations))


def test_the_first_page_counts_topics_as_their_list_does() -> None:
    sim = started().with_topic("t", 1)
    sim.manager.group_offsets.create_topic()
    listed = topics_view(sim.operations, "", TopicOrder.NAME, 1)
    assert (listed.total, listed.internal_hidden) == (1, 1)
    html = page_of(overview_view(sim.operations))
    assert '<a href="/console/topics">1</a> <small>and 1 internal</small>' in html
