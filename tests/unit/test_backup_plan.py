"""Goal: the plan of a backup takes what a log is made of, and the manifest says it without doubt.
Method: states and listings by hand; manifests to bytes and back; hostile manifests.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkalog.broker.backup.files import (
    How,
    PartitionState,
    copied_bytes,
    is_derived,
    plan_partition,
)
from kafkalog.format.disk.backup_manifest import (
    BackupFile,
    BackupLogDir,
    BackupManifest,
    BackupPartition,
    decode_manifest,
    encode_manifest,
)
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition

STATE = PartitionState(
    segments=((0, 100), (10, 200), (20, 50)),
    active_index_bytes=(16, 12),
    log_start_offset=3,
    end_offset=25,
    snapshot_offsets=(2, 10, 20, 25),
)
FILES = {
    ".log": {0: 100, 10: 200, 20: 4096},
    ".index": {0: 8, 10: 16, 20: 4096},
    ".timeindex": {0: 12, 10: 24, 20: 4096},
    ".txnindex": {10: 34, 20: 34},
    ".snapshot": {2: 5, 10: 6, 20: 7, 25: 8},
}
LISTING = {
    **{
        segment_file_name(offset, suffix): size
        for suffix, sizes in FILES.items()
        for offset, size in sizes.items()
    },
    "partition.metadata": 43,
    "leader-epoch-checkpoint": 8,
    "something.else": 1,
}


def planned(state: PartitionState, listing: dict[str, int], *, is_linked: bool) -> dict[str, Any]:
    """How and how much, by name."""
    plan = plan_partition(state, listing, is_linked=is_linked)
    files = [file for segment in plan.segments for file in segment.files]
    return {each.name: (each.how, each.size_bytes) for each in (*files, *plan.others)}


def test_links_and_copies() -> None:
    """Newest first; of the active segment what it had; snapshots inside the log, none behind it."""
    plan = plan_partition(STATE, LISTING, is_linked=True)
    assert [segment.base_offset for segment in plan.segments] == [20, 10, 0]
    link, copy = How.LINK, How.COPY
    assert planned(STATE, LISTING, is_linked=True) == {
        segment_file_name(20, ".log"): (copy, 50),
        segment_file_name(20, ".index"): (copy, 16),
        segment_file_name(20, ".timeindex"): (copy, 12),
        segment_file_name(10, ".log"): (link, 200),
        segment_file_name(10, ".index"): (link, 16),
        segment_file_name(10, ".timeindex"): (link, 24),
        segment_file_name(10, ".txnindex"): (copy, 34),
        segment_file_name(0, ".log"): (link, 100),
        segment_file_name(0, ".index"): (link, 8),
        segment_file_name(0, ".timeindex"): (link, 12),
        segment_file_name(10, ".snapshot"): (link, 6),
        segment_file_name(20, ".snapshot"): (link, 7),
        "partition.metadata": (copy, 43),
    }
    copies = planned(STATE, LISTING, is_linked=False)
    assert {how for how, _ in copies.values()} == {copy}
    assert copies.keys() == planned(STATE, LISTING, is_linked=True).keys()


def test_a_missing_segment_ends_the_plan_and_a_missing_index_does_not() -> None:
    without = LISTING.copy()
    del without[segment_file_name(10, ".index")]
    names = planned(STATE, without, is_linked=True)
    assert segment_file_name(10, ".index") not in names
    assert segment_file_name(0, ".log") in names
    del without[segment_file_name(10, ".log")]
    plan = plan_partition(STATE, without, is_linked=True)
    assert [segment.base_offset for segment in plan.segments] == [20]


def test_a_preallocated_segment_is_copied_as_far_as_it_is_written() -> None:
    longer = {**LISTING, segment_file_name(0, ".log"): 1 << 20}
    names = planned(STATE, longer, is_linked=True)
    assert names[segment_file_name(0, ".log")] == (How.COPY, 100)


def test_room() -> None:
    """With links the active segment; else all, and the indexes on top."""
    assert copied_bytes(1_000_000, 10, is_linked=True) == 10
    assert copied_bytes(1_000_000, 10, is_linked=False) == 1_005_000


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.index", True),
        ("00000000000000000000.timeindex", True),
        ("00000000000000000000.snapshot", True),
        ("00000000000000000000.txnindex", False),
        ("00000000000000000000.log", False),
        ("partition.metadata", False),
    ],
)
def test_derived(name: str, expected: bool) -> None:
    assert is_derived(name) is expected


MANIFEST = BackupManifest(
    is_complete=True,
    created_ms=1_700_000_000_000,
    cluster_id="abc",
    log_dirs=(
        BackupLogDir(
            name="log-dir-0",
            source="/data/ä",
            files=(BackupFile("meta.properties", 10, 5),),
            partitions=(
                BackupPartition(
                    TopicPartition("a.b-c", 3), 5, 9, (BackupFile("0.log", 1 << 40, None),)
                ),
            ),
        ),
    ),
)


def test_the_manifest_comes_back() -> None:
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST
    assert MANIFEST.log_dirs[0].partitions[0].size_bytes == 1 << 40


def _changed(path: list[str | int], value: object) -> bytes:
    body = json.loads(encode_manifest(MANIFEST))
    place = body
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(body).encode()


_PARTITION: list[str | int] = ["log_dirs", 0, "partitions", 0]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["format"], 2),
        (["format"], True),
        (["complete"], 1),
        (["log_dirs"], {}),
        (["log_dirs", 0], "x"),
        (["log_dirs", 0, "name"], "../etc"),
        (["log_dirs", 0, "name"], "log-dir-0/.."),
        (["log_dirs", 0, "files"], {"../x": [1, 2]}),
        (["log_dirs", 0, "files"], {"..": [1, 2]}),
        (["log_dirs", 0, "files"], {"a/b": [1, 2]}),
        (["log_dirs", 0, "files"], {"a": [1]}),
        (["log_dirs", 0, "files"], {"a": [-1, 2]}),
        (["log_dirs", 0, "files"], {"a": ["1", 2]}),
        (["log_dirs", 0, "files"], {"a": None}),
        ([*_PARTITION, "topic"], ".."),
        ([*_PARTITION, "topic"], "a/b"),
        ([*_PARTITION, "partition"], -1),
        ([*_PARTITION, "partition"], "0"),
        ([*_PARTITION, "end_offset"], None),
    ],
)
def test_another_manifest_is_refused(path: list[str | int], value: object) -> None:
    """Also when it would lead out of the target."""
    with pytest.raises(FormatError):
        decode_manifest(_changed(path, value))


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b"\xff", b"{}", b"[" * 100_000])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_manifest(data)
