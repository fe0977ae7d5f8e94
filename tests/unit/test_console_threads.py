"""Goal: no page of the console takes the threads that everything else needs, and its files are what
they say they are, in colours that can be read.
Method: a disk that hangs; the files, their digests and their contrast.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientSession, ClientTimeout

import kafkalog.console
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.console.assets import asset_address, vendored_packages
from kafkalog.console.rendering import prepare
from kafkalog.console.segment_states import SegmentState
from kafkalog.server.api import Api, Phase
from kafkalog.server.console import events, pages
from kafkalog.server.console.threads import PAGES_IN_WORK, ConsoleThreads
from kafkalog.server.protocol.errors import ApiError
from kafkalog.settings import load_settings
from tests.made_api import api_over, listening
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkalog.log.unified_log import UnifiedLog


BROWSER = {"Accept": "text/html"}
TIMEOUT = ClientTimeout(30)
SETTINGS = load_settings(None, {}, {"http.port": "0"})


class Edge:
    """An HTTP edge with two control threads, and a gate that holds what the test wants held."""

    def __init__(self, *, is_control_held: bool) -> None:
        self.is_control_held = is_control_held
        self.sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
        self.sim.operations.topics.create("t", 2)
        self.gate = threading.Event()
        self.url = ""

    def run(self, story: Callable[[Edge, Api, ClientSession], Awaitable[None]]) -> None:
        """The story beside an edge that serves; its gate is open at the end."""
        asyncio.run(self._run(story))

    async def _run(self, story: Callable[[Edge, Api, ClientSession], Awaitable[None]]) -> None:
        control, others = ThreadPoolExecutor(2), ThreadPoolExecutor(2)
        console = ConsoleThreads()
        api = api_over(self.sim, SETTINGS, others, control_pool=control, console_threads=console)
        for _ in range(2 if self.is_control_held else 0):
            control.submit(self.gate.wait)
        session = ClientSession(timeout=TIMEOUT)
        async with listening(api) as listeners, session as client:
            self.url = f"http://127.0.0.1:{listeners[0].port}"
            try:
                await story(self, api, client)
            finally:
                self.gate.set()
        for pool in (control, console, others):
            pool.shutdown()


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_refusals_and_files_wait_for_no_thread_that_hangs(*, is_first: bool) -> None:
    if is_first:
        prepare.cache_clear()

    async def story(edge: Edge, api: Api, client: ClientSession) -> None:
        style = asset_address("console.css")
        for path, phase, status in (
            ("/console/none", Phase.SERVING, 404),
            ("/console/topics", Phase.STARTING, 503),
            (style, Phase.SERVING, 200),
        ):
            api.state.phase = phase
            async with client.get(edge.url + path, headers=BROWSER) as answer:
                kind = "text/css" if path == style else "text/html"
                assert (answer.status, answer.content_type) == (status, kind)
        assert not edge.gate.is_set()

    Edge(is_control_held=True).run(story)


def test_pages_of_a_disk_that_hangs_hold_up_no_other() -> None:
    edge = Edge(is_control_held=False)
    edge.sim.produce("t", batch_of("a"), partition=0)
    edge.sim.produce("t", batch_of("b"), partition=1)
    whole, begun = edge.sim.operations.fetch, threading.Semaphore(0)

    def fetch(log: UnifiedLog, *arguments: Any, **more: Any) -> Any:
        if log.topic_partition.partition == 0:
            begun.release()
            edge.gate.wait()
        return whole(log, *arguments, **more)

    edge.sim.operations.fetch = fetch  # type: ignore[method-assign] # a disk that hangs

    async def story(edge: Edge, api: Api, client: ClientSession) -> None:
        async def status(path: str) -> int:
            async with client.get(edge.url + path) as answer:
                return answer.status

        hung = "/console/topics/t/partitions/0/records.json"
        pages = [asyncio.create_task(status(hung)) for _ in range(4)]
        for _ in range(2):
            assert await asyncio.to_thread(begun.acquire, timeout=30)
        assert await asyncio.wait_for(api.blocking(int), 30) == 0
        assert await status("/console/topics/t/partitions/1/records.json") == 200
        assert await status("/console/topics/t/partitions.json") == 200
        assert await status("/console/topics.json") == 200
        assert not any(each.done() for each in pages)
        edge.gate.set()
        assert await asyncio.gather(*pages) == [200] * 4

    edge.run(story)


def test_a_search_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that reads for nobody reads no further."""
    edge = Edge(is_control_held=False)
    for number in range(20):
        edge.sim.produce("t", batch_of(f"{number}"), partition=number % 2)
    whole, begun, left = edge.sim.operations.fetch, threading.Event(), asyncio.Event()
    reads, both = list[object](), threading.Barrier(2)

    def fetch(log: UnifiedLog, *arguments: Any, **more: Any) -> Any:
        reads.append(log)
        begun.set()
        edge.gate.wait()
        return whole(log, *arguments, **more)

    class Noted(pages._Reader):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            left.set()

    monkeypatch.setattr(pages, "_Reader", Noted)
    monkeypatch.setattr(edge.sim.operations, "fetch", fetch)

    async def story(edge: Edge, api: Api, client: ClientSession) -> None:
        url = f"{edge.url}/console/topics/t/records.json?text=none&count=1"
        search = asyncio.create_task(client.get(url))
        assert await asyncio.to_thread(begun.wait, 30)
        search.cancel()
        await asyncio.wait_for(left.wait(), 30)
        edge.gate.set()
        # Once both threads are free, the one that searched has ended.
        await asyncio.gather(*(api.pools.console.run("long", both.wait) for _ in range(2)))
        assert len(reads) == 1
        async with client.get(url) as answer:
            assert (await answer.json())["cursor"] is None
        assert len(reads) > 2

    edge.run(story)


@pytest.mark.parametrize("is_left", [False, True])
def test_pages_that_wait_are_bounded(*, is_left: bool) -> None:
    """Also when their readers leave: a disk that hangs gets no longer queue."""

    async def story() -> None:
        threads, gate = ConsoleThreads(), threading.Event()
        pages = [asyncio.create_task(threads.run("a", gate.wait)) for _ in range(PAGES_IN_WORK)]
        await asyncio.sleep(0)
        for each in pages if is_left else ():
            each.cancel()
        try:
            await asyncio.sleep(0)
            with pytest.raises(ApiError) as refused:
                await threads.run("a", int)
            assert refused.value.entry.error_code == 42902
            assert await threads.run("b", int) == 0
        finally:
            gate.set()
        ends = await asyncio.gather(*pages, return_exceptions=True)
        assert [each is True for each in ends] == [not is_left] * PAGES_IN_WORK
        while True:  # until the threads have made the pages of those who left
            try:
                assert await threads.run("a", int) == 0
            except ApiError:
                assert is_left
                await asyncio.sleep(0.001)
            else:
                break
        threads.shutdown()

    asyncio.run(story())


def test_a_live_page_is_told_of_news_until_the_daemon_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(events, "STREAMS", 2)

    async def story(edge: Edge, api: Api, client: ClientSession) -> None:
        url = f"{edge.url}/console/events"
        async with client.get(url) as first, client.get(url) as second:
            assert (first.status, first.content_type) == (200, "text/event-stream")
            async with client.get(url) as refused:
                assert (refused.status, (await refused.json())["error_code"]) == (429, 42903)
            assert await first.content.readuntil(b"\n\n") == b"retry: 5000\n\n"
            edge.sim.operations.topics.create("more", 1)
            assert await first.content.readuntil(b"\n\n") == b"event: news\ndata: health\n\n"
            edge.sim.metrics.history.sample(1, 1)
            assert await first.content.readuntil(b"\n\n") == b"event: news\ndata: traffic\n\n"
            second.close()
            while api.state.console_streams > 1:  # noqa: ASYNC110 - until the server has seen it
                await asyncio.sleep(0.001)
            monkeypatch.setattr(events, "LOOK_SECONDS", 600)
            async with client.get(url) as third:
                api.state.phase = Phase.STOPPING
                api.delayed_fetches.wake_all()
                for each in (first, third):
                    await asyncio.wait_for(each.content.read(), 30)
        assert api.state.console_streams == 0
        assert api.delayed_fetches.waiting_count == 0

    Edge(is_control_held=False).run(story)


ROOT = Path(kafkalog.console.__file__).parent
VENDOR = ROOT / "static" / "vendor"
STYLE = (ROOT / "static" / "console.css").read_text()
SCHEMES = [
    dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", text))
    for text in STYLE.split("@media (prefers-color-scheme: dark)", 1)
]
LIGHT, DARK = SCHEMES[0], SCHEMES[0] | SCHEMES[1]


def luminance(colour: str) -> float:
    """Relative, of sRGB."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_vendored_files_are_those_of_the_manifest() -> None:
    named = dict[str, str]()
    for package in vendored_packages():
        assert package.version
        assert package.licence
        assert package.source.startswith("https://")
        assert any("LICENSE" in name for name in package.files)
        named.update(package.files)
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name != "manifest.json"
    }
    assert found == named


def test_no_template_holds_a_script_or_a_style() -> None:
    for path in sorted((ROOT / "templates").iterdir()):
        text = path.read_text()
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text), path.name
        assert not re.search(r"<script(?![^>]*\ssrc=)", text), path.name
        assert "|safe" not in text.replace(" ", ""), path.name
        assert not re.search(r'(?:src|href)="https?:', text), path.name


@pytest.mark.parametrize(
    ("text", "ground"),
    [("on-seg", f"seg-{state.value}") for state in SegmentState]
    + list(
        product(
            ("text", "quiet", "link", "well", "warn", "trouble"), ("ground", "surface", "raised")
        )
    )
    + [(each, f"{each}-soft") for each in ("well", "warn", "trouble")]
    + list(product(("text", "quiet", "link"), ("warn-soft", "trouble-soft")))
    + [("on-accent", "accent")],
)
def test_text_can_be_read_on_its_ground(text: str, ground: str) -> None:
    """WCAG 2.2 AA, 1.4.3."""
    for scheme in (LIGHT, DARK):
        assert contrast(scheme[text], scheme[ground]) >= 4.5


@pytest.mark.parametrize("ground", ["ground", "surface"])
@pytest.mark.parametrize("mark", ["edge", "plot-one", "plot-two"])
def test_what_is_drawn_can_be_seen(mark: str, ground: str) -> None:
    """WCAG 2.2 AA, 1.4.11: borders of fields, curves."""
    for scheme in (LIGHT, DARK):
        assert contrast(scheme[mark], scheme[ground]) >= 3
