"""Goal: log directories on an object store are read as those on a disk are.
Method: the same directory on a disk, in fsspec's store in memory, and on the disk behind fsspec
(``local://``), where other processes see it, too.
"""

from __future__ import annotations

import random
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import fsspec
import pytest
from click.testing import CliRunner
from fsspec.implementations.memory import MemoryFileSystem
from structlog.testing import capture_logs

from kafkalog.cli.main import make_cli
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError
from kafkalog.format.topic_names import TopicPartition
from kafkalog.jobs.audit import audit_directories
from kafkalog.jobs.compact import compact_directories
from kafkalog.jobs.fleet import UnusableDirectory, find_partitions
from kafkalog.jobs.stats import count_records, partition_rows
from kafkalog.jobs.tasks import InProcess, ProcessPool
from kafkalog.jobs.whatif import forecast
from kafkalog.spark import register
from kafkalog.spark.logs.directory import DirectoryLogs
from kafkalog.spark.logs.object_store import ObjectStore, StoreMissing, filesystem_for
from kafkalog.spark.logs.open import open_logs, read_piece
from kafkalog.spark.logs.partition_files import Checkpoints
from kafkalog.spark.logs.values import Access, OffsetRange
from tests.fleet_world import kept_logging, plant_mixed
from tests.naive.cleaning_logs import TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafkalog.env.filesystem import ReadFilesystem

pytestmark = pytest.mark.spark

PARTITIONS = 4


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return plant_mixed(tmp_path / "logs", "orders", PARTITIONS)


@pytest.fixture
def stored(log_dir: Path) -> Iterator[str]:
    """A copy of it in the store in memory; its address."""
    memory = fsspec.filesystem("memory")
    address = f"memory://bucket/{random.randrange(1 << 60)}"
    memory.put(f"{log_dir}/", f"{address}/", recursive=True)
    yield address
    memory.rm(address, recursive=True)


def first_log(store: ReadFilesystem, address: str) -> str:
    directory = f"{address}/orders-0"
    return (
        f"{directory}/{next(each for each in store.list_dir(directory) if each.endswith('.log'))}"
    )


def test_the_calls_answer_as_those_of_a_disk(log_dir: Path, stored: str) -> None:
    disk, store = SystemFilesystem(), filesystem_for([stored])
    assert isinstance(store, ObjectStore)
    inside = [each.name for each in disk.list_dir_stats(str(log_dir)) if each.is_dir]
    assert [each.name for each in store.list_dir_stats(stored) if each.is_dir] == inside
    for name in disk.list_dir(f"{log_dir}/orders-0"):
        here, there = f"{log_dir}/orders-0/{name}", f"{stored}/orders-0/{name}"
        assert store.stat(there).is_file
        assert store.stat(there).size == disk.stat(here).size
        assert store.read_file(there) == disk.read_file(here)
        ours, theirs = store.open_read(there), disk.open_read(here)
        assert (ours.path, ours.size()) == (there, theirs.size())
        for size, position in ((10, 0), (7, 3), (1 << 30, 5), (10, ours.size()), (0, 0)):
            assert ours.pread(size, position) == theirs.pread(size, position)
        assert store.exists(there)
        assert store.is_at(ours, there)
    assert not store.exists(f"{stored}/orders-9")
    assert not store.is_locked(f"{stored}/.lock")
    with pytest.raises(FileNotFoundError):
        store.list_dir(f"{stored}/orders-9")
    with pytest.raises(FileNotFoundError):
        store.open_read(f"{stored}/orders-0/none")
    with pytest.raises(NotADirectoryError):
        store.list_dir(first_log(store, stored))


@pytest.fixture
def hosts() -> Iterator[None]:
    """Addresses with ``hosts://``: each host has objects of its own, as name nodes have."""
    fsspec.register_implementation("hosts", Hosts, clobber=True)
    yield
    Hosts.objects.clear()


class Hosts(MemoryFileSystem):
    """See hosts; a host may refuse, or answer each range with the whole object."""

    protocol = "hosts"
    cachable = False
    objects: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, host: str, **options: Any) -> None:
        if host == "refuses":
            raise TypeError("connect() needs a password")
        if host == "tells":
            raise TypeError("connect(user, 's3c/ret') is refused")
        super().__init__(**options)
        self.host = host
        self.store = self.objects.setdefault(host, {})
        self.pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return urlsplit(path).path if "://" in path else path

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        return {"host": urlsplit(path).hostname or ""}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        data: bytes = super().cat_file(path)
        return data if self.host == "whole" else data[start:end]


@pytest.mark.usefixtures("hosts")
def test_the_host_of_an_address_counts() -> None:
    """No other cluster is read than the one that is named, in one run neither."""
    for host in ("one", "two"):
        store, name = fsspec.core.url_to_fs(f"hosts://{host}/logs/name")
        store.pipe_file(name, host.encode())
    store = filesystem_for(["hosts://one/logs", "hosts://two/logs"])
    for host in ("one", "two"):
        assert store.list_dir(f"hosts://{host}/logs") == ["name"]
        assert store.read_file(f"hosts://{host}/logs/name") == host.encode()
        assert store.open_read(f"hosts://{host}/logs/name").pread(2, 1) == host.encode()[1:]
    assert not store.exists("hosts://three/logs/name")


@pytest.mark.usefixtures("hosts")
def test_no_text_has_a_password() -> None:
    """Messages and logs name the address without the secret that may be in it."""
    address = "hosts://user:s3cret@whole/logs"
    store, name = fsspec.core.url_to_fs(f"{address}/name")
    store.pipe_file(name, b"0123456789")
    here = filesystem_for([address])
    file = here.open_read(f"{address}/name")
    assert file.path == "hosts://user:***@whole/logs/name"
    damaged, errors = Checkpoints(here), []
    for call in (
        lambda: file.pread(3, 4),
        lambda: here.list_dir(f"{address}/name"),
        lambda: here.read_file(f"{address}/missing"),
        lambda: filesystem_for(["hosts://user:s3cret@refuses/logs"]),
        lambda: filesystem_for(["nothing://user:s3cret@one/logs"]),
        lambda: find_partitions([f"{address}/missing"], here),
        lambda: open_logs(Access(paths=(address,), read_committed=False)).bounds("none", 0),
        lambda: damaged.offsets(address, "name"),
    ):
        with pytest.raises((OSError, KafkalogError)) as caught:
            call()
        errors.append(repr(caught.value) + str(caught.value))
    assert not [each for each in errors if "s3cret" in each]


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize("kind", [FileNotFoundError, PermissionError, OSError, RuntimeError])
def test_what_a_library_says_has_no_password(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """Neither the text of a store's library nor the trace that led to it tells the password, as it
    stands in the address or as it is meant; the kind of the error stays.
    """
    address, refused = (f"hosts://user:s3c%2Fret@{host}/logs" for host in ("one", "tells"))
    here = filesystem_for([address])

    def fail(*_: object, **__: object) -> None:
        raise kind(f"{address}/name for s3c/ret")

    for name in ("ls", "info", "cat_file"):
        monkeypatch.setattr(Hosts, name, fail)
    calls: tuple[Callable[[], object], ...] = (
        lambda: here.list_dir(address),
        lambda: here.stat(f"{address}/name"),
        lambda: here.read_file(f"{address}/name"),
        lambda: filesystem_for([refused]),
    )
    for call in calls:
        with pytest.raises((OSError, StoreMissing)) as caught:
            call()
        told = "".join(traceback.format_exception(caught.value))
        assert "***" in told
        assert "s3c%2Fret" not in told
        assert "s3c/ret" not in told
        is_of_a_disk = issubclass(kind, OSError) and isinstance(caught.value, OSError)
        assert not is_of_a_disk or isinstance(caught.value, kind)


@pytest.mark.usefixtures("hosts")
def test_rows_log_lines_and_usage_errors_have_no_password(log_dir: Path) -> None:
    """What a job prints, stores and logs of an address is without its secret."""
    address = "hosts://user:s3cret@one/logs"
    store, root = fsspec.core.url_to_fs(address)
    for path in log_dir.rglob("*"):
        if path.is_file():
            store.pipe_file(f"{root}/{path.relative_to(log_dir)}", path.read_bytes())
    damaged = first_log(filesystem_for([address]), address).replace(address, root)
    store.pipe_file(damaged, store.cat_file(damaged)[:-1])
    partitions = find_partitions([address], filesystem_for([address]))
    rows: list[Any] = [
        *audit_directories(partitions, InProcess()).rows,
        *forecast(partitions, InProcess(), now_ms=TIME, horizon_ms=0),
        *partition_rows(count_records(partitions[1:], InProcess(), width_ms=1_000)),
    ]
    assert {type(row).__name__ for row in rows} == {"AuditRow", "WhatifRow", "PartitionRow"}
    assert {row.directory.rpartition("/")[0] for row in rows} == {"hosts://user:***@one/logs"}
    with capture_logs() as lines:
        opened = DirectoryLogs(Access(paths=(address,)))
        opened.all_durable_ends({TopicPartition("orders", 0): 1 << 40})
    (line,) = lines
    assert line["event"] == "archive_ends_at_recovery_point"
    assert line["directory"] == "hosts://user:***@one/logs"
    words = ["spark", "compact", "--dirs", str(log_dir), "--out", address]
    with kept_logging():
        result = CliRunner().invoke(make_cli(), words)
    assert result.exit_code == 2
    assert "not hosts://user:***@one/logs" in result.output


@pytest.mark.usefixtures("hosts")
def test_a_library_that_cannot_read_ranges_is_named() -> None:
    """What to do about it, not "the object was replaced"."""
    store, name = fsspec.core.url_to_fs("hosts://whole/logs/name")
    store.pipe_file(name, b"0123456789")
    file = filesystem_for(["hosts://whole/logs"]).open_read("hosts://whole/logs/name")
    assert file.pread(10, 0) == b"0123456789"
    with pytest.raises(OSError, match=r"10 bytes for a range of 3: .* fsspec 2026\.7\.0"):
        file.pread(3, 4)


@pytest.mark.parametrize("size", ["the same", "another"])
def test_an_object_that_is_replaced_is_never_mixed(stored: str, size: str) -> None:
    """Other bytes under the same name are an error, whatever their number."""
    store = filesystem_for([stored])
    name = first_log(store, stored)
    file = store.open_read(name)
    data = b"x" * (file.size() if size == "the same" else 5)
    fsspec.filesystem("memory").pipe_file(name, data)
    assert not store.is_at(file, name)
    with pytest.raises(OSError, match="replaced"):
        file.pread(100, 0)
    fsspec.filesystem("memory").rm(name)
    assert not store.is_at(file, name)
    with pytest.raises(FileNotFoundError):
        file.pread(100, 0)


@pytest.mark.parametrize(
    ("later", "is_same"),
    [
        ({"ETag": "e"}, True),
        ({"VersionId": "v", "ETag": "e"}, True),
        ({"ETag": "f"}, False),
        ({"VersionId": "w", "ETag": "e"}, False),
        ({}, False),
        ({"created": 7}, False),
    ],
)
def test_answers_that_tell_less_are_no_other_object(
    stored: str, monkeypatch: pytest.MonkeyPatch, later: dict[str, Any], *, is_same: bool
) -> None:
    """A library that answers from a listing, which tells no version, ends no job; another object
    does.
    """
    memory, store = fsspec.filesystem("memory"), filesystem_for([stored])
    name = first_log(store, stored)
    size = store.stat(name).size
    told: dict[str, Any] = {"VersionId": "v", "ETag": "e"}
    monkeypatch.setattr(
        type(memory), "info", lambda *_, **__: {"name": name, "size": size, "type": "file", **told}
    )
    file = store.open_read(name)
    told = later
    assert store.is_at(file, name) is is_same
    if is_same:
        assert len(file.pread(100, 0)) == 100
    else:
        with pytest.raises(OSError, match="replaced"):
            file.pread(100, 0)


@pytest.mark.parametrize(
    ("told", "mtime_ms"),
    [
        ({"mtime": 1_700_000_000.5}, 1_700_000_000_500),
        ({"LastModified": datetime.fromtimestamp(1_700_000_000, UTC)}, 1_700_000_000_000),
        ({"modificationTime": 1_700_000_000_500}, 1_700_000_000_500),
        ({"modificationTime": 0}, 0),
        ({}, 0),
    ],
)
def test_a_modification_time_is_in_milliseconds(
    stored: str, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], mtime_ms: int
) -> None:
    """Retention of batches without timestamps goes by it, on every store."""
    memory, store = fsspec.filesystem("memory"), filesystem_for([stored])
    name = first_log(store, stored)
    found = {"name": name, "size": 1, "type": "file", **told}
    monkeypatch.setattr(type(memory), "info", lambda *_, **__: found)
    assert store.stat(name).mtime_ms == mtime_ms


def test_what_a_store_raises_is_an_error_of_a_disk(
    stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs tell it like any other fault."""

    class Unreachable(Exception):
        """As libraries of stores have them."""

    def fail(*_: object, **__: object) -> None:
        raise Unreachable("no route")

    memory = fsspec.filesystem("memory")
    store = filesystem_for([stored])
    file = store.open_read(first_log(store, stored))
    for name in ("ls", "info", "cat_file"):
        monkeypatch.setattr(type(memory), name, fail)
    for call in (
        lambda: store.list_dir(stored),
        lambda: store.exists(stored),
        lambda: store.read_file(stored),
        lambda: file.pread(1, 0),
    ):
        with pytest.raises(OSError, match="Unreachable: no route"):
            call()


def test_every_record_is_read(log_dir: Path, stored: str) -> None:
    """Topics, bounds, pieces and bytes are the disk's, also of committed records alone."""
    for read_committed in (False, True):
        there = Access(paths=(stored,), read_committed=read_committed)
        here = Access(paths=(str(log_dir),), read_committed=read_committed)
        ours, theirs = open_logs(there), open_logs(here)
        assert ours.topics() == theirs.topics() == {"orders": list(range(PARTITIONS))}
        for partition in range(PARTITIONS):
            bounds = ours.bounds("orders", partition)
            assert bounds == theirs.bounds("orders", partition)
            wanted = OffsetRange("orders", partition, *bounds)
            pieces = ours.pieces(wanted, 2_000), theirs.pieces(wanted, 2_000)
            assert [each.range for each in pieces[0]] == [each.range for each in pieces[1]]
            for piece, twin in zip(*pieces, strict=True):
                stored_bytes = [bytes(each.batches) for each in read_piece(piece, there)]
                assert stored_bytes == [bytes(each.batches) for each in read_piece(twin, here)]


def test_jobs_that_read_give_the_same(log_dir: Path, stored: str) -> None:
    """Audit, forecast and counts of a copy on a store; compact says what it needs."""
    here = find_partitions([str(log_dir)], SystemFilesystem())
    there = find_partitions([stored], filesystem_for([stored]))
    local = f"local://{log_dir}"
    elsewhere = find_partitions([local], filesystem_for([local]))
    for partitions, runner in ((there, InProcess()), (elsewhere, ProcessPool(2))):
        audits = [audit_directories(each, runner) for each in (here, partitions)]
        assert audits[0].totals == audits[1].totals
        assert audits[0].totals["batches"]
        rows = [
            forecast(each, runner, now_ms=TIME, horizon_ms=1_000) for each in (here, partitions)
        ]
        # Where no record has a timestamp it is the file's, and a copy is younger.
        assert [row._replace(directory="", newest_ms=0) for row in rows[0]] == [
            row._replace(directory="", newest_ms=0) for row in rows[1]
        ]
        counts = [
            partition_rows(count_records(each, runner, width_ms=1_000))
            for each in (here, partitions)
        ]
        assert [row._replace(directory="") for row in counts[0]] == [
            row._replace(directory="") for row in counts[1]
        ]
    dry = forecast(there, InProcess(), now_ms=TIME, horizon_ms=0, with_compaction=True)
    assert {row.problem for row in dry} == {
        "a dry run of the cleaner needs the directory on a disk"
    }
    with pytest.raises(UnusableDirectory, match="on a store: copy it to a disk first"):
        compact_directories(there, str(log_dir.parent / "out"), InProcess(), now_ms=0)


def test_spark_reads_a_store(spark: SparkSession, log_dir: Path) -> None:
    """Option path takes an address, and workers read it."""
    register(spark)

    def rows(path: str) -> set[tuple[object, ...]]:
        reader = spark.read.format("kafkalog").option("subscribe", "orders")
        return {tuple(row) for row in reader.load(path).collect()}

    found = rows(f"local://{log_dir}")
    assert found
    assert found == rows(str(log_dir))


@pytest.mark.usefixtures("hosts")
def test_a_store_that_cannot_be_had_says_what_to_do() -> None:
    """What to install, or which name is wrong."""
    with pytest.raises(StoreMissing, match=r"pip install .* s3fs"):
        filesystem_for(["s3://bucket/logs"])
    with pytest.raises(StoreMissing, match="There is no store nowhere://"):
        filesystem_for(["nowhere://bucket/logs"])
    with pytest.raises(StoreMissing, match=r"refuses/logs cannot be reached: TypeError: connect"):
        filesystem_for(["hosts://refuses/logs"])
    with pytest.raises(StoreMissing, match="one kind of place, not on a disk, memory://"):
        filesystem_for(["/data", "memory://bucket"])
