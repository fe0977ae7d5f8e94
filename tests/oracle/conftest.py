"""Fixtures of real Kafka; see tests/oracle/kafka.py."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.oracle import real_directories as real
from tests.oracle.kafka import Broker, Kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# A first run fetches Kafka, and a JVM on a busy machine is slow: every command has its own limit.
LONGEST_TEST_SECONDS = 1200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Java get more time than the suite's default."""
    for item in items:
        if item.get_closest_marker("oracle") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONGEST_TEST_SECONDS))


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    """The kit, set up once."""
    return Kafka.ready()


@pytest.fixture(scope="session")
def broker(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One running broker for the session. Neither stop it nor share topics."""
    with Broker(kafka, tmp_path_factory.mktemp("broker")) as shared:
        yield shared


@pytest.fixture
def new_broker(
    kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Broker]]:
    """Factory of brokers that this test may stop, kill and replant; all end with the test."""
    with ExitStack() as stack:

        def make(*extra: str) -> Broker:
            directory = tmp_path_factory.mktemp("broker")
            return stack.enter_context(Broker(kafka, directory, extra))

        yield make


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Beside a broker that does the same."""
    with Daemon(tmp_path / "daemon") as served:
        yield served


@pytest.fixture(scope="session")
def real_directories(
    kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[real.RealDirectories]:
    """What a broker of its own wrote. Copy before changing anything; leave the broker stopped."""
    home = tmp_path_factory.mktemp("real")
    with Broker(kafka, home / "broker") as broker:
        yield real.make(broker, home)
