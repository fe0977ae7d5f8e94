"""Goal: who may not describe the cluster learns of no error where files lie on this machine.
Method: a failed directory at an edge with rules over a simulated manager; every class of error, and
every place that raises one with a path.
"""

from __future__ import annotations

import ast
import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from aiohttp import ClientSession

from kafkalog import errors
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.errors import NAMES_PATHS, CorruptData, KafkalogError, UnusableLogDirs
from kafkalog.server.admin.probes import readiness
from kafkalog.server.api import Phase
from kafkalog.server.app import close_listeners, open_listeners
from kafkalog.server.protocol.errors import entry_of, error_body
from kafkalog.server.protocol.replies import RequestIds
from kafkalog.server.security.gate import AccessFiles
from kafkalog.settings import load_settings
from tests.integration.access_world import access_settings, by
from tests.integration.daemon import ROOT
from tests.made_api import api_over
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULES = """\
allow writer all topic *
allow writer all group *
allow admin all topic *
allow admin all group *
allow admin describe cluster
"""
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, KafkalogError)
}
# What an expression with a path in it names.
PLACES = {"path", "directory", "log_dir", "file", "target", "parent", "metadata"}
V2 = "application/vnd.kafka.json.v2+json"
RECORDS = '{"records":[{"value":1}]}'
OFFSETS = '{"partitions":[{"topic":"t","partition":0,"offset":-1}]}'
REQUESTS = (
    ("GET", "/topics/t", "", ""),
    ("GET", "/topics/t/partitions/0/offsets", "", ""),
    ("GET", "/topics/t/partitions/0/records?offset=0", "", ""),
    ("GET", "/v1/topics/t/partitions/0/records?offset=0", "", ""),
    ("GET", "/v1/topics/t/partitions/0/records?offset=0", "", "text/event-stream"),
    ("GET", "/v1/topics/t/partitions/0/batches?offset=0", "", ""),
    ("GET", "/v1/topics/t/partitions/0/segments", "", ""),
    ("POST", "/topics/t/partitions/0", RECORDS, V2),
    ("POST", "/topics/t", '{"records":[{"value":1,"partition":0}]}', V2),
    ("POST", "/v1/topics/t/partitions/0/records", '{"value":1}\n', "application/x-ndjson"),
    ("POST", "/v3/clusters/{cluster}/topics/t/records", '{"partition_id":0}', "application/json"),
    ("GET", "/v3/clusters/{cluster}/topics/t/partitions/0", "", ""),
    ("GET", "/v3/clusters/{cluster}/topics/t", "", ""),
    ("POST", "/v1/offsets:list", OFFSETS, "application/json"),
    ("POST", "/v1/records:delete", OFFSETS, "application/json"),
    ("POST", "/v1/partition-moves", '{"moves":[{"topic":"t","partition":0,"log_dir":"any"}]}', ""),
    ("POST", "/v1/topics/t/partitions/0/log:flush", "", ""),
    ("POST", "/v1/retention:run", '{"topics":["t"]}', "application/json"),
    ("GET", "/console/topics/t/partitions/0", "", ""),
    ("GET", "/console/topics/t.json", "", ""),
    ("GET", "/readyz", "", ""),
)


def answers_to(root: Path, principal: str) -> list[tuple[str, int, str]]:
    """To every request, of a partition whose log directory failed."""
    settings = load_settings(
        None,
        {},
        {
            "http.port": "0",
            **{k.replace("_", "."): v for k, v in access_settings(root, RULES).items()},
        },
    )

    async def run() -> list[tuple[str, int, str]]:
        sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
        sim.operations.topics.create("t", 2)
        sim.produce("t", batch_of("a"), partition=0)
        for unit in sim.manager.units:
            where = f"{unit.log_dir.path}/t-0/00000000000000000000.log"
            reason = f"Log directory {unit.log_dir.path} failed: Input/output error ({where})"
            unit.log_dir.take_offline(reason)
        with ThreadPoolExecutor(2) as pool:
            api = api_over(sim, settings, pool)
            api.phase = Phase.SERVING
            listeners = await open_listeners(api, AccessFiles(settings.server), RequestIds("test"))
            base = f"http://127.0.0.1:{listeners[0].port}"
            found = []
            async with ClientSession(headers=by(principal)) as client:
                for method, path, body, kind in REQUESTS:
                    url = base + path.format(cluster=api.cluster_id)
                    named = {"Accept" if method == "GET" else "Content-Type": kind} if kind else {}
                    sent = client.request(method, url, data=body or None, headers=named)
                    async with sent as answer:
                        found.append((f"{method} {path}", answer.status, await answer.text()))
            await close_listeners(listeners, 5)
        return found

    return asyncio.run(run())


def test_a_failed_directory(tmp_path: Path) -> None:
    """By API; who may describe the cluster reads where it is."""
    told = answers_to(tmp_path, "writer")
    assert sum(status >= 500 or "50303" in said for _, status, said in told) > 10
    assert not [each for each in told if "/data/" in each[2]]
    assert [each for each in answers_to(tmp_path, "admin") if "/data/a" in each[2]]


def test_every_class_that_may_name_a_path() -> None:
    """The same number and offsets with and without; no path without."""
    for name, kind in CLASSES.items():
        if kind.without_paths is None:
            continue
        where = "/data/a/t-0/00000000000000000000.log"
        details: dict[str, errors.Detail] = {"log_dir": "/data/a", "first_offset": 7}
        if issubclass(kind, CorruptData):
            error: KafkalogError = kind("bad", file=where, position=1, **details)
        else:
            error = kind(f"{where} failed", **details)
        entry, told = entry_of(error), error_body(error)
        token = NAMES_PATHS.set(False)
        try:
            hidden_entry, hidden = entry_of(error), error_body(error)
        finally:
            NAMES_PATHS.reset(token)
        assert "/data" not in str(hidden), name
        assert hidden_entry is entry
        assert hidden["details"] == {"first_offset": 7}, name
        assert "/data" in str(told), name


def raised_with_a_path() -> Iterator[tuple[str, str]]:
    """Where, and the class: a keyword or a piece of the message that names a place."""
    for ring in ("log", "cleaner", "broker", "server", "env", "format"):
        for module in sorted((ROOT / "kafkalog" / ring).rglob("*.py")):
            for node in ast.walk(ast.parse(module.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                    continue
                if node.func.id not in CLASSES:
                    continue
                pieces = [each for arg in node.args for each in ast.walk(arg)]
                named = {each.attr for each in pieces if isinstance(each, ast.Attribute)}
                named |= {each.id for each in pieces if isinstance(each, ast.Name)}
                named |= {each.arg for each in node.keywords if each.arg}
                if named & PLACES:
                    yield f"{module.name}:{node.lineno}", node.func.id


def test_every_place_that_raises_one() -> None:
    """Its class has a message without paths: a new class that names a place needs one, too."""
    found = list(raised_with_a_path())
    assert len(found) > 40
    assert not [each for each in found if CLASSES[each[1]].without_paths is None]


def test_a_refused_start() -> None:
    """Everybody may ask whether the daemon is ready; what lies where is said in its log."""
    reason = "/data/a/kafkalog.registry is damaged, and no log directory has a whole copy"

    async def told() -> object:
        with ThreadPoolExecutor(1) as pool:
            api = api_over(SimManager().start(), load_settings(None, {}, {}), pool)
            api.start_refusal = reason
            return readiness(api)[1].start_refused

    assert asyncio.run(told()) == reason
    token = NAMES_PATHS.set(False)
    try:
        assert asyncio.run(told()) == UnusableLogDirs.without_paths
    finally:
        NAMES_PATHS.reset(token)
