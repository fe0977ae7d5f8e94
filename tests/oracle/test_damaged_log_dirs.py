"""Goal: the ids that Kafka gave a log directory survive rot of its meta.properties.
Method: each bit of a real broker's file, once a registry knows it; then the doctor and a daemon
on a directory that nothing knows yet.
"""

from __future__ import annotations

import shutil
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kafkalog.broker.directory.identity import IdentityFiles, plan_identities, read_identity_files
from kafkalog.broker.topics.registry import RegistryState
from kafkalog.cli.main import make_cli
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.properties import decode_meta_properties
from tests.integration.daemon import Daemon
from tests.oracle.test_adoption import as_kafka_shows, json_records

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.real_directories import RealDirectories

pytestmark = pytest.mark.oracle


def test_each_bit_of_the_file_of_a_broker(
    real_directories: RealDirectories, tmp_path: Path
) -> None:
    """What is written in the end is what the broker wrote, or the file is left as it reads."""
    path = tmp_path / "meta.properties"
    content = (real_directories.stopped / path.name).read_bytes()
    meta = decode_meta_properties(content)
    assert meta.directory_id is not None
    assert meta.node_id is not None
    directory = str(tmp_path)
    state = RegistryState(
        2,
        log_dirs=MappingProxyType({meta.directory_id: directory}),
        cluster_id=meta.cluster_id,
        node_id=meta.node_id,
    )
    for bit in range(8 * len(content)):
        rotten = bytearray(content)
        rotten[bit // 8] ^= 1 << bit % 8
        path.write_bytes(rotten)
        read = read_identity_files(directory, SystemFilesystem())
        found = IdentityFiles(directory, read.meta, read.meta_damage, state)
        plan = plan_identities([found], meta.node_id, lambda _path, _state: ())
        assert plan.unproven == {}, bit
        kept = plan.meta[directory][0] if directory in plan.meta else read.meta
        assert kept == meta, bit


def test_the_doctor_keeps_the_ids_of_a_broker(
    real_directories: RealDirectories, tmp_path: Path
) -> None:
    """Nothing proves the cluster: it is asked for; then all is served that Kafka's reader read."""
    daemon = Daemon(tmp_path)
    directory = daemon.log_dirs[0]
    shutil.copytree(real_directories.stopped, directory)
    path = directory / "meta.properties"
    meta = decode_meta_properties(path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"version=1", b"version=3"))
    source = ["--override", f"log.dirs={directory}", "--override", f"node.id={meta.node_id}"]
    run = CliRunner().invoke
    asked = run(make_cli(), ["doctor", "--repair", *source])
    assert asked.exit_code == 1
    assert f"--cluster-id {meta.cluster_id}" in asked.output
    accepted = ["--cluster-id", str(meta.cluster_id)]
    assert run(make_cli(), ["doctor", "--repair", *accepted, *source]).exit_code == 0
    assert decode_meta_properties(path.read_bytes()) == meta
    daemon.overrides["node.id"] = str(meta.node_id)
    with daemon:
        expected = [as_kafka_shows(line) for line in real_directories.consumed["plain"]]
        assert json_records(daemon, "plain") == expected
