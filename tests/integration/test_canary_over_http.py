"""Goal: the published canary figures come out of the running daemon, bytes, files and dump.
Method: raw batches over HTTP as the seed describes them; then the files, running and stopped.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from kafkalog.cli.offline.dump import DumpOptions, dump
from tests.golden.test_canary import KNOWN_CRCS, KNOWN_TIMES, canary
from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from pathlib import Path

BATCHES = "application/vnd.kafkalog.record-batches"


def produce(daemon: Daemon, topic: str, first: int, last: int) -> None:
    """Records first to last, one batch a request; the daemon assigns the offsets."""
    for offset in range(first, last + 1):
        batch = bytearray(canary(offset).encode())
        batch[:8] = bytes(8)
        answer = daemon.request(
            "POST",
            f"/v1/topics/{topic}/partitions/0/batches?acks=1",
            bytes(batch),
            {"Content-Type": BATCHES},
        )
        assert answer.json["base_offset"] == answer.json["last_offset"] == offset


def sizes(directory: Path) -> dict[str, int]:
    """File sizes by name."""
    return {path.name: path.stat().st_size for path in directory.iterdir()}


def dumped(*files: Path) -> list[str]:
    """Lines of `segments dump`; nothing may go to standard error."""
    out, err = io.StringIO(), io.StringIO()
    dump([str(file) for file in files], DumpOptions(), out, err)
    assert err.getvalue() == ""
    return out.getvalue().splitlines()


def test_default_interval_over_http(tmp_path: Path) -> None:
    """M01 M02 M03 M04 M05 M06 M07: section 1, from CRC to preallocated index."""
    with Daemon(tmp_path) as daemon:
        daemon.create_topic("canary", internal_segment_bytes="16384", retention_ms="-1")
        produce(daemon, "canary", 0, 111)
        directory = daemon.log_dirs[0] / "canary-0"
        first, second = f"{0:020d}", f"{109:020d}"
        running = sizes(directory)
        assert running[f"{first}.log"] == 16_314
        assert running[f"{second}.log"] == 450
        assert running[f"{first}.index"] == 24
        assert running[f"{first}.timeindex"] == 48
        assert running[f"{second}.index"] == 10_485_760
        assert running[f"{second}.timeindex"] == 10_485_756
        assert running[f"{second}.snapshot"] == 10
        assert running["leader-epoch-checkpoint"] == 8
        assert f"{first}.snapshot" not in running

        lines = dumped(directory / f"{first}.log")[2:]
        assert len(lines) == 109
        for offset, crc in KNOWN_CRCS.items():
            assert (
                f"CreateTime: {KNOWN_TIMES[offset]} size: {148 if offset < 3 else 150} "
                in (lines[offset])
            )
            assert f" crc: {crc} isvalid: true" in lines[offset]
        assert " position: 296 " in lines[2]
        assert " position: 16014 " in lines[107]
        assert " position: 16164 " in lines[108]
        assert dumped(directory / f"{first}.index")[1:] == [
            "offset: 28 position: 4169",
            "offset: 56 position: 8364",
            "offset: 84 position: 12564",
        ]
        assert dumped(directory / f"{first}.timeindex")[1:] == [
            f"timestamp: {KNOWN_TIMES[2] + 5000 * 26} offset: 28",
            f"timestamp: {KNOWN_TIMES[2] + 5000 * 54} offset: 56",
            f"timestamp: {KNOWN_TIMES[2] + 5000 * 82} offset: 84",
            f"timestamp: {KNOWN_TIMES[108]} offset: 108",
        ]
    closed = sizes(directory)
    assert closed[f"{second}.index"] == 0
    assert closed[f"{second}.timeindex"] == 12
    assert closed[f"{112:020d}.snapshot"] == 10


def test_index_full_roll_over_http(tmp_path: Path) -> None:
    """M03 M06: section 2, the time index of 25 slots is full first, at 49 records."""
    with Daemon(tmp_path) as daemon:
        daemon.create_topic(
            "full",
            internal_segment_bytes="16384",
            index_interval_bytes="150",
            segment_index_bytes="300",
            retention_ms="-1",
        )
        produce(daemon, "full", 0, 78)
        found = sizes(daemon.log_dirs[0] / "full-0")
        first, second = f"{0:020d}", f"{49:020d}"
        assert found[f"{first}.log"] == 7_314
        assert found[f"{first}.index"] == 192
        assert found[f"{first}.timeindex"] == 288
        assert found[f"{second}.log"] == 4_500
        assert found[f"{second}.index"] == 296
        assert found[f"{second}.timeindex"] == 300
        assert found[f"{second}.snapshot"] == 10
