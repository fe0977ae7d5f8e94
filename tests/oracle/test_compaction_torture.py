"""Goal: after a torture of a million records Kafka opens the directory and reads the same.

Method: the long form of the torture over HTTP, each codec; Kafka's loader and reader on what a stop
leaves.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from kafkalog.format.records.record_batch import Codec
from tests.integration.daemon import Daemon
from tests.integration.torture import SETTINGS, TOPIC, Torture

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.kafka import Kafka

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.timeout(1200)]

RECORDS = 1_000_000


def _plain(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_kafka_reads_what_is_left_of_a_million(codec: Codec, kafka: Kafka, tmp_path: Path) -> None:
    """M17 M19: ten versions a key, every tenth a deletion, cleaned and retained meanwhile."""
    with Daemon(tmp_path, log_dirs=1, environment=None, **SETTINGS) as daemon:
        torture = Torture(daemon, codec, RECORDS, seed=100 + int(codec))
        torture.produce()
        torture.clean()
        found = torture.read()
        torture.check(found)
        torture.wait_until_counted(RECORDS // 2)
    directory = daemon.log_dirs[0] / f"{TOPIC}-0"
    kafka.load(directory, tmp_path / "loaded" / directory.name)
    lines = map(json.loads, kafka.scan(directory))
    theirs = [(line["offset"], _plain(line["key"]), _plain(line["value"])) for line in lines]
    # Between our read and the stop a thread may have cleaned once more.
    assert set(theirs) <= set(found)
    torture.check([(offset, key or b"", value) for offset, key, value in theirs])
