"""One daemon for each kind of settings, which must end without an unforeseen error.

Modules name settings in SETTINGS (underscores for dots). Those with the same are run one after
another on one daemon, which is given back as it was: its topics, groups and dynamic configs go with
the module that made them; its log, its metrics and the cleaner's history stay. What else starts a
daemon is marked ``own_daemon`` here: `make nightly` runs it, the gate only what is marked ``gate``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = "tests.integration."


def _settings_of(module: Any) -> dict[str, Any]:
    return dict(getattr(module, "SETTINGS", {}))


def _kind(module: Any) -> str:
    """The same text for the same settings."""
    return json.dumps(_settings_of(module), sort_keys=True)


def _starts_daemons(module: Any) -> bool:
    """What is only named in annotations is no name of the module when it runs."""
    values = vars(module).values()
    return any(isinstance(value, type) and issubclass(value, Daemon) for value in values)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests with daemons of their own; bring those of one kind of settings together."""
    places: dict[str, int] = {}
    order: dict[int, tuple[int, int]] = {}
    for place, item in enumerate(items):
        module = getattr(item, "module", None)
        if module is None or not module.__name__.startswith(OURS):
            order[id(item)] = (place, place)
            continue
        # A module may have a fixture of this name for a daemon of its own.
        shares = "daemon" in getattr(item, "fixturenames", ()) and "daemon" not in vars(module)
        if not shares and _starts_daemons(module):
            item.add_marker(pytest.mark.own_daemon)
        first = places.setdefault(_kind(module) if shares else module.__name__, place)
        order[id(item)] = (first, place)
    items.sort(key=lambda item: order[id(item)])


class SharedDaemon:
    """The daemon of the kind of settings that is being tested; at most one at a time."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._kind = ""
        self._daemon: Daemon | None = None

    def of(self, module: Any) -> Daemon:
        """A ready daemon with the settings of this module."""
        if self._daemon is None or _kind(module) != self._kind:
            self.end()
            self._daemon = Daemon(self._factory.mktemp("daemon"), **_settings_of(module))
            self._kind = _kind(module)
            self._daemon.start()
        self._daemon.log_start = len(self._daemon.log_path.read_text())
        return self._daemon

    def end(self) -> None:
        """Stop it: it must end well and have logged nothing unforeseen."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            assert daemon.stop() == 0
            assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()

    def abandon(self) -> None:
        """What a module left is unfit for another one, which gets a new daemon."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None and daemon.process is not None:
            daemon.kill()


@pytest.fixture(scope="session")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedDaemon]:
    shared = SharedDaemon(tmp_path_factory)
    try:
        yield shared
    finally:
        shared.end()


@pytest.fixture(scope="module")
def daemon(request: pytest.FixtureRequest, shared_daemon: SharedDaemon) -> Iterator[Daemon]:
    """A ready daemon with nothing in it; a module's SETTINGS are its overrides."""
    one = shared_daemon.of(request.module)
    yield one
    try:
        assert one.request("GET", "/readyz").status == 200
        _clear(one)
    except (AssertionError, OSError):
        shared_daemon.abandon()
        raise


def _clear(daemon: Daemon) -> None:
    """Take away what a module left: groups with their members, topics, dynamic configs."""
    for group in daemon.request("GET", "/v1/groups").json["groups"]:
        name = quote(group["group"], safe="")
        for member in daemon.request("GET", f"/v1/groups/{name}").json["members"]:
            instance = quote(member["instance_id"], safe="")
            daemon.request("DELETE", f"/consumers/{name}/instances/{instance}")
        daemon.request("DELETE", f"/v1/groups/{name}")
    base = daemon.cluster()
    for topic in daemon.request("GET", f"{base}/topics").json["data"]:
        if not topic["is_internal"]:
            gone = daemon.request("DELETE", f"{base}/topics/{quote(topic['topic_name'], safe='')}")
            assert gone.status == 204, gone.body
    changed = [
        {"name": entry["name"], "operation": "DELETE"}
        for entry in daemon.request("GET", f"{base}/broker-configs").json["data"]
        if entry["source"].startswith("DYNAMIC")
    ]
    if changed:
        back = daemon.request("POST", f"{base}/broker-configs:alter", {"data": changed})
        assert back.status == 204, back.body
