"""What a page of the console weighs and takes over HTTP: ``python -m tests.console.page_weights``.

A simulated daemon with ``--topics`` topics (2,000) of one partition, each with a record; the median
of ``--times`` requests (20) on one connection, and of the processor time of client and daemon,
which a busy machine changes less. Printed, not judged: a machine decides the times.
"""

from __future__ import annotations

import argparse
import http.client
import logging
import re
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.console.assets import all_assets
from tests.cleaning_daemon import keyed_batch
from tests.console.simulated_daemon import serving
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = (
    "/console",
    "/console/topics",
    "/console/topics?sort=size",
    "/console/records",
    "/console/topics/topic-0000/partitions",
    "/console/topics/topic-0000/partitions/0",
    "/console/topics/topic-0000/records",
    "/console/groups",
    "/console/retention",
    "/console/compaction",
    "/console/log-dirs",
    "/console/configs?all=true",
    "/console/tasks",
    "/console/runbooks",
)
_ASSET = re.compile(r"/console/assets/[0-9a-f]+/([\w.]+)")
_COMPACTED = 10  # one topic of so many


class Weight(NamedTuple):
    """Of one page; bytes as sent, files once."""

    path: str
    html_bytes: int
    css_bytes: int
    js_bytes: int
    median_ms: float
    cpu_ms: float


def main() -> None:
    """Print a line a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--times", type=int, default=20)
    arguments = parser.parse_args()
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)  # thousands of new topics
    structlog.configure(wrapper_class=quiet)
    with serving(_filled(arguments.topics)) as daemon:
        print(f"{arguments.topics:,} topics, median of {arguments.times}")
        print(f"{'page':<44}{'HTML':>10}{'CSS':>9}{'JS':>9}{'ms':>9}{'CPU ms':>9}")
        for each in _weights(daemon.port, arguments.times):
            sizes = f"{each.html_bytes:>10,}{each.css_bytes:>9,}{each.js_bytes:>9,}"
            times = f"{each.median_ms:>9.1f}{each.cpu_ms:>9.1f}"
            print(f"{each.path:<44}{sizes}{times}", flush=True)


def _filled(topics: int) -> SimManager:
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
    for number in range(topics):
        name = f"topic-{number:04}"
        configs = {} if number % _COMPACTED else {"cleanup.policy": "compact"}
        sim.operations.topics.create(name, 1, configs)
        assert sim.produce(name, keyed_batch(("key", "value"))).error is None
        sim.metrics.traffic.observe_append(name, 1, 100, 1)
    sim.clock.advance_ms(120_000)
    return sim


def _weights(port: int, times: int) -> Iterator[Weight]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for path in PAGES:
        took_ms, cpu_ms, body = list[float](), list[float](), b""
        for _ in range(times + 1):  # the first one loads the template
            began, cpu_began = time.perf_counter(), time.process_time()
            connection.request("GET", path, headers={"Accept": "text/html"})
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            took_ms.append((time.perf_counter() - began) * 1000)
            cpu_ms.append((time.process_time() - cpu_began) * 1000)
        names = set(_ASSET.findall(body.decode()))
        files = [all_assets()[name] for name in names]
        css, js = (
            sum(len(each.content) for each in files if each.name.endswith(ending))
            for ending in (".css", ".js")
        )
        medians = (statistics.median(each[1:]) for each in (took_ms, cpu_ms))
        yield Weight(path, len(body), css, js, *medians)
    connection.close()


if __name__ == "__main__":
    main()
