"""Goal: the attacks on batches, in a daemon: rot outside the CRC and in it, after kill -9 and
    after a clean stop, moves no record, gives no offset twice and costs no neighbour.
Method: three topics, two of 40 records with acks=all; bytes of their files are flipped between
three lives of one daemon.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.integration.daemon import BINARY, ROOT, Daemon
from tests.integration.http_world import (
    append,
    batch_of,
    end_offset,
    read_batches,
    records_of,
    refused,
)

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 40


def value(offset: int) -> bytes:
    """Of the record at an offset; all are of one size."""
    return b'"value-%02d"' % offset


def produce(daemon: Daemon, topic: str, offset: int) -> None:
    """One record with acks=all, which gets this offset."""
    assert append(daemon, topic, batch_of(value(offset))).status == 200
    assert end_offset(daemon, topic) == offset + 1


def flip(daemon: Daemon, topic: str, offset: int, at: int, mask: int, base: int = 0) -> None:
    """Bits of one byte of the batch of an offset; ``at`` below 0 counts from its end."""
    path = daemon.log_dirs[0] / f"{topic}-0" / f"{base:020d}.log"
    data, size = bytearray(path.read_bytes()), len(batch_of(value(0)))
    data[(offset - base + (at < 0)) * size + at] ^= mask
    path.write_bytes(data)


def served(daemon: Daemon, topic: str) -> dict[int, bytes | None]:
    """All records from the beginning on, to the first one refused."""
    found: dict[int, bytes | None] = {}
    offset = 0
    while offset < end_offset(daemon, topic):
        answer = read_batches(daemon, topic, offset)
        if answer.status != 200:
            break
        found |= {record.offset: record.value for record in records_of(answer.body)}
        offset = int(answer.headers["Kafka-Next-Offset"])
    return found


def verify(daemon: Daemon, topic: str) -> str:
    """What ``kafkalog segments verify`` says."""
    directory = str(daemon.log_dirs[0] / f"{topic}-0")
    command = [sys.executable, "-m", "kafkalog", "segments", "verify", directory]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_rot_moves_no_record_and_gives_no_offset_twice(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, http_produce_acks="all", log_initial_task_delay_ms="86400000")
    with daemon:
        for topic in ("base", "payload", "length"):
            daemon.create_topic(topic)
            for offset in range(COUNT):
                if topic != "length" or offset < 12:
                    produce(daemon, topic, offset)
        roll = "/v1/topics/length/partitions/0/log:roll"
        assert daemon.request("POST", roll, {}).status == 200
        produce(daemon, "length", 12)
    assert "sound" in verify(daemon, "base")
    flip(daemon, "base", COUNT - 1, 5, 2)
    assert "sound" not in verify(daemon, "base")

    with daemon:  # after a clean stop
        assert served(daemon, "base") == {each: value(each) for each in range(COUNT)}
        produce(daemon, "base", COUNT)
        daemon.kill()
        flip(daemon, "base", COUNT, 5, 2)
        flip(daemon, "payload", COUNT - 1, -3, 1)
        flip(daemon, "length", 4, 10, 1)
        flip(daemon, "length", 7, 16, 4)

        daemon.start()  # after kill -9
        assert served(daemon, "base") == {each: value(each) for each in range(COUNT + 1)}
        produce(daemon, "base", COUNT + 1)
        assert end_offset(daemon, "payload") == COUNT
        assert served(daemon, "payload") == {each: value(each) for each in range(COUNT - 1)}
        body = refused(read_batches(daemon, "payload", COUNT - 1), 500, 50010)
        assert json.dumps(body["details"]).count(str(COUNT - 1)) == 2
        produce(daemon, "payload", COUNT)
        for rotten in (4, 7):
            body = refused(read_batches(daemon, "length", rotten), 500, 50010)
            details = body["details"]
            assert isinstance(details, dict)
            assert (details["base_offset"], details["last_offset"]) == (rotten, rotten)
            behind = read_batches(daemon, "length", rotten + 1)
            assert records_of(behind.body)[0].offset == rotten + 1
            page = daemon.request(
                "GET",
                f"/topics/length/partitions/0/records?offset={rotten + 1}",
                None,
                {"Accept": BINARY},
            )
            assert page.json[0]["offset"] == rotten + 1
    assert "sound" in verify(daemon, "base")
