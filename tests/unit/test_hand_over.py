"""Goal: directories of every Kafka become kafkalog's and go back; what is no such directory, or is
in use, or does not belong together, is refused with what to do; nothing is written unless asked.
Method: directories as each kind of Kafka leaves them, on a simulated disk; the commands on real
ones.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import META_PROPERTIES, REGISTRY_FILE
from kafkalog.broker.startup.adoption import plan_adoption
from kafkalog.broker.startup.hand_back import plan_hand_back
from kafkalog.broker.startup.hand_over import Conversion
from kafkalog.broker.topics.registry import decode_registry
from kafkalog.cli.main import make_cli
from kafkalog.cli.offline.hand_over import _everything, access_faults
from kafkalog.errors import UnusableLogDirs
from kafkalog.format.disk.backup_manifest import RESTORE_MARKER
from kafkalog.format.disk.file_names import PARTITION_METADATA
from kafkalog.format.disk.properties import decode_partition_metadata, encode_partition_metadata
from kafkalog.format.topic_names import new_id
from tests.hand_over_world import (
    CLUSTER,
    KINDS,
    NODE_ID,
    TOPICS,
    check_adopted,
    check_as_left,
    check_serves,
    copy_of,
    hand_over,
    left_by,
    log_bytes,
    partition_names,
    started,
)
from tests.naive.message_sets import PlainMessage, bare
from tests.sim.sim_manager import DIRS, SimManager, batch_of
from tests.sim.sim_random import SimRandom

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.broker.startup.hand_over import HandOverPlan
    from tests.sim.sim_filesystem import SimFilesystem

A, B = DIRS


def notes(plan: HandOverPlan, level: str) -> str:
    return "\n".join(
        f"{each.subject}: {each.message}" for each in plan.notes if each.level == level
    )


def adopt(disk: SimFilesystem, seed: int = 0) -> HandOverPlan:
    return hand_over(disk, plan_adoption, is_executed=True, seed=seed)


def adopted(kind: str) -> SimFilesystem:
    disk = left_by(kind)
    assert notes(adopt(disk), "error") == ""
    return disk


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_takes_the_node_id_of_the_directories(kind: str) -> None:
    """M02: any node.id; every one but 1 ended the start."""
    check_serves(started(left_by(kind)))


def test_a_node_id_that_is_configured_is_compared() -> None:
    config = BrokerConfig(log_dirs=DIRS, node_id=1)
    with pytest.raises(UnusableLogDirs, match=f"Set node.id={NODE_ID}, or leave node.id out"):
        SimManager(left_by("2.8"), config=config).start()
    disk = left_by("2.8")
    text = disk.read_file(f"{B}/{META_PROPERTIES}").replace(b"id=5", b"id=6")
    disk.write_file_atomically(f"{B}/{META_PROPERTIES}", text)
    with pytest.raises(UnusableLogDirs, match=f"{A} has 5, {B} has 6"):
        started(disk)


def test_the_node_id_is_shown_and_stays() -> None:
    sim = started(left_by("3.5"))
    (entry,) = [each for each in sim.operations.describe_broker_configs() if each.name == "node.id"]
    assert entry.value == str(NODE_ID)
    check_serves(started(sim.stop()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_look_writes_nothing(kind: str) -> None:
    disk = left_by(kind)
    before = len(disk.operations)
    plan = hand_over(disk, plan_adoption, is_executed=False)
    assert not plan.is_refused
    assert plan.changes
    assert len(disk.operations) == before
    assert "2 topics adopted: orders, users" in notes(plan, "info")
    assert ("not stopped cleanly" in notes(plan, "warning")) is not KINDS[kind].is_clean
    assert ("__cluster_metadata-0" in notes(plan, "info")) is KINDS[kind].has_metadata_log


@pytest.mark.parametrize("kind", KINDS)
def test_adopted_served_and_handed_back(kind: str) -> None:
    """M02 M14: the ids stay, and Kafka finds what it left."""
    disk = adopted(kind)
    check_adopted(disk, kind)
    again = hand_over(disk, plan_adoption, is_executed=False, seed=9)
    assert again.changes == []
    state = decode_registry(disk.read_file(f"{A}/{REGISTRY_FILE}"))
    assert state.node_id == NODE_ID
    if kind != "1.1":
        assert state.cluster_id == CLUSTER
    sim = started(disk)
    check_serves(sim)
    assert sim.manager.cluster_id == state.cluster_id
    for topic in sim.manager.registry.state.topics.values():
        assert topic.topic_id == state.topics[topic.name].topic_id
    disk = sim.stop()
    plan = hand_over(disk, plan_hand_back, is_executed=True)
    assert notes(plan, "error") == ""
    assert len(plan.changes) == {"1.1": 6, "3.9": 0}.get(kind, 2)
    check_as_left(disk, kind)
    assert hand_over(disk, plan_hand_back, is_executed=False).changes == []
    check_serves(started(disk))


def test_directories_that_cannot_be_taken() -> None:
    """Each with what to do."""

    def empty(disk: SimFilesystem) -> None:
        disk.remove_tree(B)
        disk.make_dir(f"{B}/data/t-0")
        disk.write_file_atomically(f"{B}/data/{META_PROPERTIES}", b"version=1\n")

    def other(old: bytes, new: bytes) -> Callable[[SimFilesystem], None]:
        def change(disk: SimFilesystem) -> None:
            text = disk.read_file(f"{B}/{META_PROPERTIES}").replace(old, new)
            disk.write_file_atomically(f"{B}/{META_PROPERTIES}", text)

        return change

    def twice(disk: SimFilesystem) -> None:
        name = partition_names(disk, A)[0]
        disk.make_dir(f"{B}/{name}")

    cases: list[tuple[Callable[[SimFilesystem], None], str]] = [
        (lambda disk: disk.remove_tree(B), "does not exist"),
        (empty, f"no log directory of Kafka.*{B}/data is one"),
        (lambda disk: disk.hold_lock(f"{B}/.lock"), "is using it: stop the broker"),
        (lambda disk: disk.write_file_atomically(f"{B}/{RESTORE_MARKER}", b""), "restore"),
        (other(CLUSTER.encode(), b"x" * 22), "different clusters"),
        (other(b"broker.id=5", b"broker.id=4"), "different node ids"),
        (other(b"version=0", b"version=7"), "is damaged .*kafkalog doctor --repair"),
        (twice, "Duplicate"),
    ]
    for change, reason in cases:
        disk = left_by("2.8")
        change(disk)
        before = len(disk.operations)
        for is_executed in (False, True):
            plan = hand_over(disk, plan_adoption, is_executed=is_executed)
            assert plan.is_refused
            assert plan.changes == []
            (note,) = plan.notes
            assert note.level == "error"
            assert re.search(reason, note.message), note
        assert len(disk.operations) == before
    partition = f"{A}/{partition_names(left_by('1.1'), A)[0]}"
    plan = hand_over(left_by("1.1"), plan_adoption, is_executed=True, log_dirs=(partition,))
    assert f"name the log directory around it, {A}" in notes(plan, "error")


def meta_changed(disk: SimFilesystem, path: str, old: bytes, new: bytes) -> None:
    text = disk.read_file(f"{path}/{META_PROPERTIES}")
    assert old in text
    disk.write_file_atomically(f"{path}/{META_PROPERTIES}", text.replace(old, new))


@pytest.mark.parametrize("kind", ["2.8", "3.9"])
@pytest.mark.parametrize(
    ("log_dirs", "new", "reason"),
    [
        ((B,), b"x" * 22, f"{B}/meta.properties was changed: .* cluster.id is x+, not {CLUSTER}"),
        ((B,), CLUSTER[:-1].encode() + b"x", f"{B}/meta.properties was changed: .*doctor --repair"),
        (DIRS, b"x" * 22, f"cluster.id is x+ in meta.properties, but {CLUSTER} in kafkalog.reg"),
    ],
)
def test_a_cluster_id_that_was_changed_is_not_overwritten(
    kind: str, log_dirs: tuple[str, ...], new: bytes, reason: str
) -> None:
    """Kafka does not start either: who is right is not decided here."""
    disk = started(adopted(kind)).stop()
    for path in log_dirs:
        meta_changed(disk, path, CLUSTER.encode(), new)
    before = len(disk.operations)
    for is_executed in (False, True):
        plan = hand_over(disk, plan_adoption, is_executed=is_executed)
        assert re.search(reason, notes(plan, "error")), plan.notes
        assert plan.changes == []
    assert len(disk.operations) == before


def test_a_node_id_that_was_changed_is_not_overwritten() -> None:
    disk = started(adopted("3.9")).stop()
    meta_changed(disk, B, b"node.id=5", b"node.id=6")
    plan = hand_over(disk, plan_adoption, is_executed=True)
    assert f"{B}/meta.properties was changed: " in notes(plan, "error")
    assert "node.id is 6, not 5" in notes(plan, "error")
    assert plan.changes == []


def test_a_cluster_id_that_was_made_here_gives_way_to_kafkas() -> None:
    """A Kafka 1.1 has none; the 2.8 that it becomes writes ZooKeeper's."""
    disk = started(adopted("1.1")).stop()
    assert notes(hand_over(disk, plan_hand_back, is_executed=True), "error") == ""
    for path in DIRS:
        meta_changed(disk, path, b"version=0", b"version=0\ncluster.id=" + CLUSTER.encode())
    assert notes(adopt(disk), "error") == ""
    sim = started(disk)
    check_serves(sim)
    assert sim.manager.cluster_id == CLUSTER


def test_what_kafka_did_between_two_stays() -> None:
    """Topics that it made, grew and made again; nothing is put aside as -stray."""
    disk = started(adopted("2.8")).stop()
    ids = SimRandom(77)

    def make(path: str, name: str, topic_id: bytes) -> None:
        disk.make_dir(f"{path}/{name}")
        disk.write_file_atomically(f"{path}/{name}/{PARTITION_METADATA}", topic_id)

    place = {name: path for path in DIRS for name in partition_names(disk, path)}
    known = disk.read_file(f"{place['orders-0']}/orders-0/{PARTITION_METADATA}")
    make(A, "orders-3", known)
    made, remade = (encode_partition_metadata(new_id(ids.uuid_bytes)) for _ in range(2))
    make(A, "made-0", made)
    disk.remove_tree(f"{place['users-0']}/users-0")
    make(A if place["users-0"] == B else B, "users-0", remade)
    plan = adopt(disk, seed=5)
    assert notes(plan, "error") == ""
    assert "topic users: Kafka deleted it and made it again" in notes(plan, "warning")
    assert "-stray" not in notes(plan, "warning")
    sim = started(disk)
    assert sim.operations.topic_names() == ["made", "orders", "users"]
    assert sim.operations.topics.describe("orders").partition_count == 4
    topics = sim.manager.registry.state.topics
    assert topics["users"].topic_id == decode_partition_metadata(remade)
    assert topics["orders"].kafka_partition_count == 4
    assert sim.operations.partition_log("orders", 0).log_end_offset == 3
    assert sim.operations.partition_log("users", 0).log_end_offset == 0
    assert hand_over(sim.stop(), plan_adoption, is_executed=False).changes == []


def test_partitions_that_are_elsewhere_are_named() -> None:
    disk = left_by("3.5")
    for path in DIRS:
        for name in partition_names(disk, path):
            if name == "orders-1":
                disk.remove_tree(f"{path}/{name}")
    text = notes(hand_over(disk, plan_adoption, is_executed=False), "warning")
    assert "topic orders: partitions 1 of 3 are in none of these directories" in text
    disk = started(adopted("3.5")).stop()
    plan = hand_over(disk, plan_adoption, is_executed=False, log_dirs=(A,))
    assert f"{B}: it served before, and is not named" in notes(plan, "warning")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_old_message_formats_become_v2(magic: int, is_damaged: bool) -> None:
    """Said before; what is damaged stays, is named, and holds nothing else up."""
    disk = left_by("1.1")
    file = min(log_bytes(disk))
    directory = file.rpartition("/")[0]
    messages = [PlainMessage(offset, 5 * magic - (1 - magic), b"k", b"v") for offset in range(3)]
    old = b"".join(bare(magic, each) for each in messages)
    if is_damaged:
        old = old[:-1] + bytes((old[-1] ^ 1,))
    disk.write_file_atomically(file, old)
    foreseen = hand_over(disk, plan_adoption, is_executed=False)
    assert [each.path for each in foreseen.changes if isinstance(each, Conversion)] == [directory]
    assert disk.read_file(file) == old
    done = adopt(disk)
    assert notes(done, "error") == ""
    if is_damaged:
        assert f"{directory}: Not converted, because it is damaged" in notes(done, "warning")
        assert done.is_partial
        assert directory not in [each.path for each in done.changes]
        assert disk.read_file(file) == old
        return
    assert disk.read_file(file)[16] == 2
    assert hand_over(disk, plan_adoption, is_executed=False).changes == []


def test_what_kafka_will_not_know_is_said() -> None:
    sim = started(adopted("1.1"))
    sim.with_topic("ours").operations.topics.create_partitions("users", 2)
    sim.produce("ours", batch_of("v"))
    disk = sim.stop()
    disk.make_dir(f"{A}/kafkalog.registry.damaged")
    plan = hand_over(disk, plan_hand_back, is_executed=True)
    text = notes(plan, "warning")
    assert "topic ours: it was made here, and Kafka does not know it" in text
    assert "topic users: it has 2 partitions, Kafka knows 1" in text
    assert f"{A}/kafkalog.registry.damaged: Kafka ends its start at a directory" in text
    assert not [
        name
        for path in DIRS
        for name in disk.list_dir(path)
        if disk.exists(f"{path}/{name}/{PARTITION_METADATA}")
    ]
    check_as_left(copy_of_synced(disk), "1.1")


def copy_of_synced(disk: SimFilesystem) -> SimFilesystem:
    disk.sync_all()
    return copy_of(disk)


def test_what_no_kafka_knows_is_not_handed_back() -> None:
    disk = SimManager().start().with_topic("t").stop()
    plan = hand_over(disk, plan_hand_back, is_executed=True)
    assert "none of its topics was adopted from Kafka" in notes(plan, "error")
    assert "it has no kafkalog.registry: kafkalog did not adopt it" in notes(
        hand_over(left_by("1.1"), plan_hand_back, is_executed=True), "error"
    )


def test_an_identity_that_was_made_here_is_not_called_kafkas() -> None:
    """Copied partitions, without the meta.properties of their broker."""
    disk = left_by("3.9")
    for path in DIRS:
        disk.unlink(f"{path}/{META_PROPERTIES}")
    assert notes(adopt(disk), "error") == ""
    sim = started(disk)
    assert sim.operations.topic_names() == sorted(TOPICS)
    made = f"made by kafkalog, node.id 1, cluster.id {sim.manager.cluster_id}"
    disk = sim.stop()
    plan = hand_over(disk, plan_hand_back, is_executed=True)
    assert f"{A}: {made}: no broker has this cluster.id" in notes(plan, "error")
    assert f"{A}: {made}, 2 partitions" in notes(adopt(disk), "info")


def test_a_daemons_own_directories_are_not_called_kafkas() -> None:
    disk = SimManager().start().with_topic("t").stop()
    plan = hand_over(disk, plan_adoption, is_executed=False)
    assert f"{A}: made by kafkalog, node.id 1" in notes(plan, "info")


def test_who_made_a_cluster_is_known_after_a_start_without_topics() -> None:
    disk = SimManager().start().stop()
    disk = SimManager(disk).start().with_topic("t").stop()
    plan = hand_over(disk, plan_adoption, is_executed=False)
    assert f"{A}: made by kafkalog, node.id 1" in notes(plan, "info")


@pytest.mark.parametrize(
    ("kind", "key"),
    [("2.8", b"cluster.id"), ("3.9", b"cluster.id"), ("1.1", b"broker.id"), ("3.9", b"node.id")],
)
def test_what_belongs_to_two_brokers_is_not_handed_back(kind: str, key: bytes) -> None:
    """Kafka would not start on it."""
    disk = started(adopted(kind)).stop()
    lines = disk.read_file(f"{B}/{META_PROPERTIES}").splitlines()
    changed = [key + b"=77" if line.startswith(key + b"=") else line for line in lines]
    assert changed != lines
    disk.write_file_atomically(f"{B}/{META_PROPERTIES}", b"\n".join(changed))
    plan = hand_over(disk, plan_hand_back, is_executed=True)
    shown = key.decode().replace("broker", "node")
    assert f"{B}/meta.properties was changed: " in notes(plan, "error")
    assert f"{shown} is 77, not " in notes(plan, "error")
    assert "doctor --repair" in notes(plan, "error")
    assert plan.changes == []
    assert key + b"=77" in disk.read_file(f"{B}/{META_PROPERTIES}")


def test_a_torn_tail_that_was_kept_is_named() -> None:
    disk = left_by("3.5")  # not stopped cleanly
    file = min(log_bytes(disk))
    old = bare(1, PlainMessage(0, 5, b"k", b"v"))
    disk.write_file_atomically(file, old + old[:20])
    done = adopt(disk)
    (torn,) = [n for n in disk.list_dir(file.rpartition("/")[0]) if n.endswith(".torn")]
    kept = f"{file.rpartition('/')[0]}/{torn}"
    assert f"20 bytes after the last whole message of {0:020d}.log are in {kept}" in notes(
        done, "warning"
    )


@pytest.mark.parametrize(
    ("damaged", "shown"),
    [(b"version=7", " --override node.id=5"), (b"version=7\nbroker.id=rot", "")],
)
def test_the_doctors_command_has_the_node_id_of_the_directory(damaged: bytes, shown: str) -> None:
    """It was node.id=1, which a repair would have written."""
    disk = left_by("2.8")
    old = b"version=0\nbroker.id=5" if not shown else b"version=0"
    meta_changed(disk, A, old, damaged)
    plan = hand_over(disk, plan_adoption, is_executed=False, log_dirs=(A,))
    assert notes(plan, "error").endswith(f"doctor --repair --override log.dirs={A}{shown}")


def test_nobody_is_told_to_set_a_node_id_that_nobody_set() -> None:
    """A directory of another broker beside one that was adopted."""
    disk = left_by("3.9")
    assert notes(hand_over(disk, plan_adoption, is_executed=True, log_dirs=(A,)), "error") == ""
    meta_changed(disk, B, b"node.id=5", b"node.id=6")
    text = notes(hand_over(disk, plan_adoption, is_executed=True), "error")
    assert f"Stored node id 6 of {B} does not match node.id 5 of the registry" in text
    assert "Set node.id" not in text


def test_what_is_said_of_odd_directories_is_what_happens() -> None:
    disk = left_by("2.8")
    odd = ["we ird-0", "ok-1.0123456789abcdef0123456789abcdef-stray", "we.ird_x", "we ird x"]
    for name in odd:
        disk.make_dir(f"{A}/{name}")
    plan = adopt(disk)
    found = f"{A}/we ird-0: the start renames it to we ird-0.ID-stray and does not serve it: "
    assert f"{found}Topic name is invalid: 'we ird' contains" in notes(plan, "warning")
    assert "2 partitions, stopped cleanly" in notes(plan, "info")
    for name in odd[2:]:
        assert f"{A}: {name} stays as it is: its name is no partition's" in notes(plan, "info")
    sim = started(disk)
    check_serves(sim)
    names = disk.list_dir(A)
    assert set(odd[1:]) <= set(names)
    assert "we ird-0" not in names
    assert any(re.fullmatch("we ird-0.[0-9a-f]{32}-stray", name) for name in names)


# ---- the commands


def on_disk(disk: SimFilesystem, root: Path) -> list[str]:
    """The log directories of a simulated disk, on a real one."""
    paths = []
    for path in DIRS:
        target = root / path.rpartition("/")[2]
        target.mkdir()
        paths.append(str(target))
        for name in disk.list_dir(path):
            if not disk.stat(f"{path}/{name}").is_dir:
                (target / name).write_bytes(disk.read_file(f"{path}/{name}"))
                continue
            (target / name).mkdir()
            for each in disk.list_dir(f"{path}/{name}"):
                (target / name / each).write_bytes(disk.read_file(f"{path}/{name}/{each}"))
    return paths


def test_the_commands(tmp_path: Path) -> None:
    """M25: text, JSON, exit statuses."""
    paths = on_disk(left_by("1.1"), tmp_path)
    runner = CliRunner()

    def run(*arguments: str, status: int = 0) -> str:
        result = runner.invoke(make_cli(), list(arguments))
        assert result.exit_code == status, result.output
        return result.stdout

    text = run("adopt", *paths)
    assert f"info: {paths[0]}: of Kafka with ZooKeeper, broker.id 5, 2 partitions" in text
    assert f"to write: {paths[0]}/meta.properties: gets an id of the directory" in text
    assert text.endswith("Nothing was written. To do it, add --execute.\n")
    assert not os.path.exists(f"{paths[0]}/{REGISTRY_FILE}")
    text = run("adopt", "--execute", *paths)
    assert f"written: {paths[1]}/kafkalog.registry: the topic registry, with 2 topics" in text
    command = f"kafkalog server --override log.dirs={paths[0]},{paths[1]}"
    assert text.endswith(f"Done. Start the daemon: {command}\n")
    document = json.loads(run("adopt", "--execute", "--output", "json", *paths))
    assert document["changes"] == []
    assert {each["level"] for each in document["findings"]} <= {"info", "warning"}
    assert run("hand-back", *paths).endswith("Nothing was written. To do it, add --execute.\n")
    text = run("hand-back", "--execute", *paths)
    assert f"written: {paths[0]}/meta.properties: loses the id of the directory" in text
    assert text.endswith("Done. Start the Kafka broker on them.\n")
    assert run("hand-back", *paths).endswith("nothing to write. Start the Kafka broker on them.\n")
    text = run("adopt", str(tmp_path), status=1)
    assert "no log directory of Kafka" in text
    assert text.endswith("Refused: nothing was written.\n")


@pytest.mark.parametrize("command", ["adopt", "hand-back"])
def test_two_spellings_of_one_directory(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text that is the same path is one directory; a link to one of the others is refused."""
    paths = on_disk(left_by("2.8"), tmp_path)
    runner = CliRunner()
    assert runner.invoke(make_cli(), ["adopt", "--execute", *paths]).exit_code == 0
    monkeypatch.chdir(tmp_path)
    once = runner.invoke(make_cli(), [command, *paths])
    for spelling in (paths[0], f"{paths[0]}/", os.path.basename(paths[0])):
        twice = runner.invoke(make_cli(), [command, *paths, spelling])
        assert (twice.exit_code, twice.stdout) == (0, once.stdout)
    link = tmp_path / "link"
    link.symlink_to(paths[0])
    refused = runner.invoke(make_cli(), [command, "--execute", *paths, str(link)])
    assert refused.exit_code == 1
    assert f"names {paths[0]} twice: as {link}" in refused.stdout
    assert refused.stdout.endswith("Refused: nothing was written.\n")


def test_files_of_another_user(tmp_path: Path) -> None:
    """Root may read everything, but what it writes the broker could not."""
    file = tmp_path / "t-0" / "00000000000000000000.log"
    file.parent.mkdir()
    file.touch()
    assert access_faults(str(tmp_path), os.geteuid()) == []
    assert access_faults(str(tmp_path / "none"), os.geteuid()) == []
    assert set(_everything(str(tmp_path))) == {str(tmp_path), str(file.parent), str(file)}
    if os.geteuid() == 0:
        os.chown(tmp_path, 4321, -1)
        (note,) = access_faults(str(tmp_path), 0)
        assert "it belongs to user 4321" in note.message
        assert "sudo -u user 4321" in note.message
    else:
        file.chmod(0)
        (note,) = access_faults(str(tmp_path), os.geteuid())
        assert "1 file cannot be read and written by" in note.message
        assert str(file) in note.message
    assert "chown -R" in note.message


def test_every_topic_is_in_the_world() -> None:
    assert sum(TOPICS.values()) == len(log_bytes(left_by("1.1")))
