"""Goal: a list of topics shows every column at half a screen, whatever its cells hold.
Method: a simulated daemon whose topics have long ages, limits of both kinds and a lost directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from tests.cleaning_daemon import keyed_batch
from tests.console.browser import Window
from tests.console.simulated_daemon import SimulatedDaemon, serving
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

pytestmark = pytest.mark.console
_AGE_MS = 44 * 3_600_000
_LIMITS = {"retention.ms": "626400000", "retention.bytes": str(1500 << 20)}
_WIDTHS = """() => [...document.querySelectorAll("main .scroll")]
  .filter((each) => each.checkVisibility({contentVisibilityAuto: true}))
  .map((each) => [each.clientWidth, each.scrollWidth, ...[...each.querySelectorAll("thead th")].map(
    (cell) => `${cell.innerText} ${Math.round(cell.offsetWidth)}`)])"""


@pytest.fixture(scope="module", params=["online", "offline"])
def crowded(request: pytest.FixtureRequest) -> Iterator[SimulatedDaemon]:
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
    for name, policy in (
        ("orders", "delete"),
        ("telemetry.position", "compact,delete"),
        ("sessions", "compact,delete"),
    ):
        sim.operations.topics.create(name, 2, {"cleanup.policy": policy, **_LIMITS})
        for partition in range(2):
            batch = keyed_batch(("k", "v" * 900), timestamp_ms=sim.clock.wall_ms() - _AGE_MS)
            assert sim.produce(name, batch, partition=partition).error is None
    for _ in range(20):
        for name in ("orders", "telemetry.position"):
            sim.metrics.traffic.observe_append(name, 1, 6_200_000, 1)
        sim.clock.advance_ms(60_000)
    if request.param == "offline":
        sim.manager.logs.units[0].log_dir.take_offline("EIO")
    with serving(sim) as daemon:
        yield daemon


@pytest.mark.parametrize("width", [420, 1120])
@pytest.mark.parametrize("path", ["/console", "/console/topics", "/console/retention"])
def test_no_column_is_cut(
    browser: Browser, crowded: SimulatedDaemon, path: str, width: int
) -> None:
    with Window(browser, crowded, width=width) as window:
        window.open(path)
        for shown, needed, *columns in window.page.evaluate(_WIDTHS):
            assert needed <= shown + 1, columns
