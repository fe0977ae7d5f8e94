"""Goal: what Kafka's names tell of all topics together never goes back.
Method: a topic is deleted in the middle of a scrape, and a scrape comes in the middle of a
deletion: doors of the tables that both read let the other one in, until it has to wait.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from kafkalog.observe.metrics import Metrics

if TYPE_CHECKING:
    from _collections_abc import dict_items
    from collections.abc import Callable

    from kafkalog.observe.topic_metrics import TopicTotals, TopicTraffic

LET_IN_SECONDS = 0.2  # who has to wait for the mutex waits longer


class Door(dict[Any, Any]):
    """A table that lets somebody else in, once, when it is read or written."""

    def __init__(self, content: dict[Any, Any], visitor: Callable[[], None]) -> None:
        super().__init__(content)
        self.visit = threading.Thread(target=visitor)

    def _let_in(self) -> None:
        if self.visit.ident is None:
            self.visit.start()
            self.visit.join(LET_IN_SECONDS)

    def items(self) -> dict_items[Any, Any]:
        self._let_in()
        return super().items()

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._let_in()


def busy_traffic() -> TopicTraffic:
    """Two topics."""
    traffic = Metrics().traffic
    traffic.observe_append("goes", 7, 700)
    traffic.observe_append("stays", 1, 100)
    return traffic


def whole(traffic: TopicTraffic) -> TopicTotals:
    """Of all topics together."""
    return next(traffic.totals())


def test_a_topic_that_is_deleted_in_a_scrape_counts_once() -> None:
    """M26: the scrape sees it among the topics or among the deleted ones. No fall, which a rate
    would take for a restart of the daemon.
    """
    traffic = busy_traffic()
    door = Door(traffic.append_bytes._metrics, lambda: traffic.forget_topic("goes"))
    before = whole(traffic)
    traffic.append_bytes._metrics = door
    assert whole(traffic) == before
    door.visit.join()
    assert whole(traffic) == before
    assert before.bytes_in == 800


def test_a_scrape_in_the_middle_of_a_deletion_counts_a_topic_once() -> None:
    """M26: nor is it counted twice, from where the sum could only fall. A scrape between the two
    steps of a deletion tells what the others tell.
    """
    traffic = busy_traffic()
    seen = [whole(traffic)]
    traffic._departed = door = Door({}, lambda: seen.append(whole(traffic)))
    traffic.forget_topic("goes")
    door.visit.join()
    seen.append(whole(traffic))
    assert seen == [seen[0]] * 3
