"""Goal: no log directory lies in another one, whoever would make it so.
Method: starts and restores on the simulated disk; links on a real one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import InvalidBackupTarget, InvalidConfig
from kafkalog.format.disk.backup_manifest import RESTORE_MARKER
from kafkalog.format.disk.file_names import PARTITION_METADATA
from kafkalog.log.inspect.directory_facts import check_apart, lies_in
from tests.backup_world import back_up, new_disk, restore, with_data
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sim.sim_filesystem import SimFilesystem


@pytest.mark.parametrize(
    ("log_dirs", "why"),
    [
        (("/data", "/data/a"), "names /data/a, which lies in /data:"),
        (("/data/a", "/data"), "names /data/a, which lies in /data:"),
        (("/data/b", "/data/a/t-0/x", "/data/a"), "names /data/a/t-0/x, which lies in /data/a:"),
        (("/", "/data/a"), "names /data/a, which lies in /:"),
        (("/data/a", "/data//a"), "names /data/a twice: as /data//a"),
    ],
)
def test_a_log_directory_in_another_one_refuses_the_start(
    log_dirs: tuple[str, ...], why: str
) -> None:
    """An inner directory is never taken for something that lies in the outer one's way."""
    sim = SimManager(new_disk(), config=BrokerConfig(log_dirs=log_dirs))
    before = list(sim.disk.operations)
    with pytest.raises(InvalidConfig, match=why):
        sim.start()
    assert sim.disk.operations == before


def test_a_partition_refuses_the_start(tmp_path: Path) -> None:
    """A typo makes no empty store among a partition's segments."""
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / PARTITION_METADATA).write_text("version: 0\n")
    (tmp_path / "link").symlink_to(partition)
    for path in (partition, tmp_path / "link"):
        with pytest.raises(InvalidConfig, match=f"names {path}, which is the directory of a part"):
            check_apart(SystemFilesystem(), (str(tmp_path / "apart"), str(path)))
    check_apart(SystemFilesystem(), (str(tmp_path),))


def test_names_that_begin_alike_are_apart() -> None:
    """Only what lies below counts."""
    check_apart(new_disk(), ("/data/a", "/data/ab", "/data/a-0", "/dat"))
    assert lies_in("/data/a", "/data/a")
    assert lies_in("/data/a", "/")


def test_links_do_not_hide_it(tmp_path: Path) -> None:
    """A link into another directory, or to it, is seen through."""
    (tmp_path / "a").mkdir()
    (tmp_path / "to-inner").symlink_to(tmp_path / "a" / "inner")
    (tmp_path / "to-a").symlink_to(tmp_path / "a")
    for other, why in (
        ("to-inner", "lies in"),
        ("to-a", "twice"),
        ("to-a/deep/deeper", "lies in"),
    ):
        paths = [str(tmp_path / "a"), str(tmp_path / other)]
        with pytest.raises(InvalidConfig, match=why):
            check_apart(SystemFilesystem(), paths)


def backed_up() -> SimFilesystem:
    """Log directories in DIRS, a backup of them, nobody that serves."""
    sim = with_data(new_disk())
    assert back_up(sim).error is None
    return sim.stop()


@pytest.mark.parametrize("target", [f"{DIRS[0]}/new", f"{DIRS[1]}/orders-0/new"])
def test_no_restore_into_a_log_directory(target: str) -> None:
    """A restore does not put directories where a daemon, or Kafka, meets them."""
    disk = backed_up()
    disk.make_dir(target.rpartition("/")[0])
    with pytest.raises(InvalidBackupTarget, match="which is a log directory"):
        restore(disk, [target])
    assert not disk.exists(target)


def test_no_restore_into_a_half_restored_directory() -> None:
    """What another restore fills is a log directory already."""
    disk = backed_up()
    disk.make_dir("/new/a")
    disk.write_file_atomically(f"/new/a/{RESTORE_MARKER}", b"")
    with pytest.raises(InvalidBackupTarget, match="lies in /new/a, which is a log directory"):
        restore(disk, ["/new/a/b"])


@pytest.mark.parametrize("targets", [("/new/a/b", "/new/a"), ("/new/a", "/new/a/b")])
def test_targets_of_a_restore_are_apart(targets: tuple[str, ...]) -> None:
    """A restore makes no log directories that a start refuses."""
    disk = backed_up()
    disk.make_dir("/new/a")
    with pytest.raises(InvalidBackupTarget, match=r"/new/a/b lies in /new/a$"):
        restore(disk, targets)
    assert disk.list_dir("/new/a") == []


def test_no_backup_into_a_foreign_log_directory() -> None:
    """A backup does not spoil the directory of another daemon, nor of a Kafka."""
    sim = with_data(new_disk())
    sim.disk.make_dir("/backup/kafka")
    sim.disk.write_file_atomically("/backup/kafka/meta.properties", b"version=1\n")
    with pytest.raises(InvalidBackupTarget, match="which is a log directory"):
        sim.operations.begin_backup("/backup/kafka/one")
    assert sim.disk.list_dir("/backup/kafka") == ["meta.properties"]
