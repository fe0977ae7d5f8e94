"""Many loads of damaged copies, by Kafka in one JVM and by us, made comparable.

Owns the questions (`LoadCase`), the JVM run (`LoadMany.java`) and what counts as the same result.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalog.cli.offline.load import LoadOptions, load_copy
from kafkalog.env.system_filesystem import copy_files
from kafkalog.errors import KafkalogError
from kafkalog.format.disk.producer_snapshot import decode_snapshot
from kafkalog.log.log_config import LogConfig
from kafkalog.settings.dynamic_configs import parse_topic_config
from tests.oracle.one_jvm import one_jvm

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.oracle.kafka import Kafka


@dataclass(frozen=True)
class LoadCase:
    """A directory to load and how. ``home`` is a directory of this case alone."""

    source: Path
    home: Path
    options: LoadOptions
    configs: dict[str, str]

    @property
    def kafkas(self) -> Path:
        return self.home / "kafka" / self.source.name

    @property
    def ours(self) -> Path:
        return self.home / "ours" / self.source.name

    def question(self) -> dict[str, Any]:
        options = self.options
        high_watermark, deleted = options.high_watermark, options.delete_records
        return {
            "source": str(self.source),
            "out": str(self.kafkas),
            "clean": options.clean,
            "recoveryPoint": options.recovery_point,
            "logStart": options.log_start,
            "hw": -1 if high_watermark is None else high_watermark,
            "now": options.now_ms,
            "deleteRecords": -1 if deleted is None else deleted,
            "roll": options.roll,
            "retention": options.retention,
            "set": self.configs,
        }

    def load(self) -> dict[str, Any]:
        """Load with kafkalog; {"error": text} when that fails."""
        shutil.rmtree(self.ours, ignore_errors=True)
        copy_files(str(self.source), str(self.ours))
        try:
            config = parse_topic_config(self.configs, LogConfig())
            return load_copy(str(self.ours), config, self.options)
        except (KafkalogError, OSError) as error:
            return {"error": f"{type(error).__name__}: {error}"}


def load_with_kafka(kafka: Kafka, home: Path, cases: Iterable[LoadCase]) -> list[Any]:
    """Kafka's results in the order of the cases."""
    with one_jvm(kafka, home) as jvm:
        return jvm.answers("LoadMany", [case.question() for case in cases])


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """Without what cannot be equal.

    Mtimes of files just made, which empty segments report; after a roll Kafka's recovery point,
    which another thread moves.
    """
    if "after" in result:
        result["after"].pop("recoveryPoint")
    for state in (result[name] for name in ("loaded", "after") if name in result):
        for segment in state["segments"]:
            if not segment["bytes"]:
                segment["largestTimestamp"] = None
    return result


def content(path: Path) -> object:
    """What a file says: bytes, or a set where the order of entries is free."""
    data = path.read_bytes()
    if path.name.removesuffix(".deleted").endswith(".snapshot"):
        try:
            return {str(entry) for entry in decode_snapshot(data)}
        except ValueError:
            return data
    if path.name.endswith("-checkpoint"):
        return sorted(data.split(b"\n"))
    return data


def differing_files(one: Path, other: Path) -> list[str]:
    """Names whose contents differ or that only one side has."""
    names = {path.name for path in (*one.iterdir(), *other.iterdir())}
    return sorted(
        name
        for name in names
        if not ((one / name).exists() and (other / name).exists())
        or content(one / name) != content(other / name)
    )
