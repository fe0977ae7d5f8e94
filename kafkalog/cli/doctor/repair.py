"""``kafkalog doctor --repair``: the log directories of a configuration, locked while it works."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkalog.broker.directory.repair import LogDirRepair
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_threads import SystemThreads
from kafkalog.log.inspect.directory_facts import check_apart, log_dir_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.broker.broker_config import BrokerConfig


@contextmanager
def open_repair(broker: BrokerConfig, cluster_id: str | None) -> Iterator[LogDirRepair]:
    """All directories that exist, locked. InvalidConfig when a daemon uses one; StorageFault."""
    filesystem = SystemFilesystem()
    check_apart(filesystem, broker.log_dirs)
    paths = dict.fromkeys(log_dir_path(filesystem, entry) for entry in broker.log_dirs)
    existing = [path for path in paths if filesystem.exists(path)]
    seams = (filesystem, SystemClock(), SystemRandom(), SystemThreads(_thread_failed))
    repair = LogDirRepair(existing, broker.node_id, cluster_id, seams)
    try:
        repair.open()
        yield repair
    finally:
        repair.close()


def _thread_failed(name: str, error: BaseException) -> None:
    """Nothing here begins a thread."""
    raise AssertionError(name) from error
