"""Goal: without authentication a request asks by a name that no stranger can have registered.
Method: a table of Host values over configurations and machines; requests without a socket.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import make_mocked_request

from kafkalog.errors import InvalidConfig
from kafkalog.server.api import Phase
from kafkalog.server.security.hosts import (
    ALLOWED,
    FOREIGN,
    MALFORMED,
    Hosts,
    names_beside,
    with_short_forms,
)
from kafkalog.settings import ServerConfig, load_settings
from tests.made_api import api_over, listening
from tests.sim.sim_manager import SimManager

OURS = (
    *("127.0.0.1", "127.0.0.1:8082", "10.1.2.3:80", "203.0.113.9", "0.0.0.0:1"),
    *("[::1]", "[::1]:8082", "[2001:DB8::1]:80", "[fe80::1%25eth0]:8082"),
    *("localhost", "LOCALHOST:8082", "localhost.", "a.localhost", "box.local", "vm.c.p.internal"),
    *("kafkalog", "kafkalog:8082", "my_service:80", "store.ns.svc", "store.ns.svc.cluster.local."),
    "",
)
FOREIGN_NAMES = (
    *("evil.example", "evil.example:8082", "EVIL.example.", "127.0.0.1.evil.example", "a.b"),
    *("localhost.evil.example", "evillocal.example", "local.evil", "x.notlocal"),
    "x.cluster.locals",
    *("127.1.", "1.2.3", "127.0.0.01", "0x7f.1", "::1", "[::1", "[evil.example]", "[]"),
    *("evil:127.0.0.1", "evil.example:8082:80", "..", ".local", "a..local", "-.example", "a%2eb"),
)
MALFORMED_NAMES = ("evil.example/x", "a b", "a@localhost", "a,localhost", "\xff", "x" * 261)


def hosts_of(**config: object) -> Hosts:
    return Hosts.of(ServerConfig(**config))  # type: ignore[arg-type]


def faults(hosts: Hosts, *names: str) -> set[int]:
    return {hosts.fault_of(make_mocked_request("GET", "/topics", {"Host": name})) for name in names}


def test_without_authentication() -> None:
    for config in ({}, {"http_auth": ("none",)}, {"http_auth": ("none",), "http_acl_file": "f"}):
        hosts = hosts_of(**config)
        for _ in range(2):  # the second time from the cache
            for name in OURS:
                assert faults(hosts, name) == {ALLOWED}, name
            for name in FOREIGN_NAMES:
                assert faults(hosts, name) == {FOREIGN}, name
            for name in MALFORMED_NAMES:
                assert faults(hosts, name) == {MALFORMED}, name


def test_with_authentication() -> None:
    hosts = hosts_of(http_auth=("basic",))
    assert faults(hosts, *OURS, *FOREIGN_NAMES) == {ALLOWED}
    assert faults(hosts, *MALFORMED_NAMES) == {MALFORMED}
    listed = hosts_of(http_auth=("basic",), http_allowed_hosts=("store.example",))
    assert faults(listed, "store.example", *OURS) == {ALLOWED}
    assert faults(listed, *FOREIGN_NAMES) == {FOREIGN}


def test_names_that_are_listed() -> None:
    hosts = hosts_of(
        http_allowed_hosts=("Store.example", ".in.example", "*.too.example"),
        http_host="listens.example",
    )
    taken = "store.example:80", "a.in.example", "a.b.IN.example.", "x.too.example"
    assert faults(hosts, *taken, "listens.example:8082") == {ALLOWED}
    others = "a.store.example", "in.example", "too.example", "xin.example", "store.example.evil"
    assert faults(hosts, *others) == {FOREIGN}
    assert faults(hosts_of(http_allowed_hosts=("*",)), *FOREIGN_NAMES) == {ALLOWED}


@pytest.mark.parametrize("entry", ["a.example:80", "http://a.example", "*a.example", "a b", "a..b"])
def test_entries_that_would_match_nothing(entry: str) -> None:
    with pytest.raises(InvalidConfig, match=r"http\.allowed\.hosts"):
        load_settings(None, {}, {"http.allowed.hosts": f"b.example,{entry}"})


def test_a_whole_target_goes_before_the_header() -> None:
    hosts = hosts_of()
    for target, header, fault in (
        ("http://evil.example/topics", "localhost", FOREIGN),
        ("http://localhost@evil.example:80/topics", "localhost", FOREIGN),
        ("http://localhost:8082/topics", "evil.example", ALLOWED),
        ("http://[::1]:8082/topics", "evil.example", ALLOWED),
        ("/topics?x=http://localhost/", "evil.example", FOREIGN),
        ("//localhost/topics", "evil.example", FOREIGN),
    ):
        request = make_mocked_request("GET", target, {"Host": header})
        assert hosts.fault_of(request) == fault, target
    assert hosts.fault_of(make_mocked_request("GET", "/")) == ALLOWED  # HTTP/1.0 may


def test_a_malformed_header_beside_a_whole_target() -> None:
    """Answers carry links that are made of the header."""
    request = make_mocked_request("GET", "http://localhost/topics", {"Host": "<b>"})
    assert hosts_of().fault_of(request) == MALFORMED


def test_the_machines_names() -> None:
    text = (
        "127.0.0.1 localhost # store\n127.0.1.1\tStore.example.org  store\n\n10.0.0.9 x.example\n"
    )
    assert names_beside("Store", text) == {"store.example.org", "store"}
    assert names_beside("store", "") == {"store"}
    pod = "store-0.store-headless.data.svc.cluster.local"
    forms = with_short_forms(names_beside("store-0", f"10.2.0.7 {pod} store-0\n"))
    assert {"store-0.store-headless", "store-0.store-headless.data", pod} <= forms
    assert with_short_forms(["www.shop.co.uk"]) == {"www.shop.co.uk"}


def test_the_cache_is_bounded() -> None:
    hosts = hosts_of()
    for number in range(5000):
        assert hosts._fault_of(f"a{number}.local") == ALLOWED
    assert hosts._fault_of.cache_info().currsize <= 1024


def test_every_port_asks() -> None:
    ports = {"http.port": "0", "admin.port": "0", "metrics.port": "0"}
    settings = load_settings(None, {}, ports)

    async def run() -> set[tuple[str, str, int]]:
        found = set()
        with ThreadPoolExecutor(1) as pool:
            api = api_over(SimManager().start(), settings, pool)
            async with listening(api) as listeners, ClientSession() as client:
                for api.state.phase in Phase:
                    for listener in listeners:
                        for path in ("/openapi.json", "/livez"):
                            url = f"http://127.0.0.1:{listener.port}{path}"
                            async with client.get(url, headers={"Host": "evil.example"}) as answer:
                                found.add((listener.role.value, path, answer.status))
        return found

    doors = ("http", "admin", "metrics")
    refused = {(door, "/openapi.json", 421) for door in doors}
    assert asyncio.run(run()) == refused | {(door, "/livez", 200) for door in doors}
