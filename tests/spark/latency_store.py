"""A store of fsspec whose requests are counted and take simulated time, and logs of any size in it.

A page of a listing has 1,000 objects, and each page is a request. `SimulatedRequests` runs the
requests of a plan one after the other and computes when they would have ended: each goes to the
simulated connection that is free first. Only the last segment of a log has batches; a plan
reads no others. Indexes are sections of one table.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit
from uuid import UUID

import fsspec
import numpy as np

from kafkalog.format.disk.file_names import PARTITION_METADATA
from kafkalog.format.disk.index_entries import pack_offset_entries, pack_time_entries
from kafkalog.format.disk.properties import encode_partition_metadata
from kafkalog.format.records.record import Record
from tests.naive.stored_batches import stored_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PAGE = 1_000
TIME = 1_700_000_000_000


@dataclass
class Obj:
    """An object: its size, what its bytes are, and which version it is."""

    size: int
    data: bytes | None = None  # None: zeros
    etag: str = "1"


@dataclass
class World:
    """The objects by directory, the requests so far, and the time at the caller."""

    latency_seconds: float = 0.02
    directories: dict[str, dict[str, Obj]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    now: float = 0.0
    before_request: Callable[[str, str], None] | None = None

    def request(self, kind: str, path: str, count: int = 1) -> None:
        self.requests[kind] += count
        self.now += count * self.latency_seconds
        if self.before_request is not None:
            self.before_request(kind, path)

    def put(self, path: str, data: bytes, etag: str = "1") -> None:
        directory, _, name = path.rpartition("/")
        self.directories.setdefault(directory, {})[name] = Obj(len(data), data, etag)


class LatencyStore(fsspec.AbstractFileSystem):
    """Addresses with ``latency://``, in ``world``."""

    protocol = "latency"
    cachable = True
    world: ClassVar[World] = World()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return (urlsplit(path).path if "://" in path else path).rstrip("/")

    def _info(self, directory: str, name: str, found: Obj) -> dict[str, Any]:
        path = f"{directory}/{name}"
        return {"name": path, "size": found.size, "type": "file", "ETag": found.etag}

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        files = self.world.directories.get(path, {})
        inner = {
            each[len(path) + 1 :].split("/")[0]
            for each in self.world.directories
            if each.startswith(f"{path}/")
        }
        count = len(files) + len(inner)
        self.world.request("list", path, max(1, -(-count // PAGE)))
        if not count:
            raise FileNotFoundError(path)
        found = [self._info(path, name, each) for name, each in files.items()]
        found += [{"name": f"{path}/{each}", "size": 0, "type": "directory"} for each in inner]
        return found if detail else [each["name"] for each in found]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        self.world.request("info", path)
        directory, _, name = path.rpartition("/")
        there = self.world.directories.get(directory, {}).get(name)
        if there is not None:
            return self._info(directory, name, there)
        if any(f"{each}/".startswith(f"{path}/") for each in self.world.directories):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        self.world.request("get", path)
        directory, _, name = path.rpartition("/")
        found = self.world.directories.get(directory, {}).get(name)
        if found is None:
            raise FileNotFoundError(path)
        start, end = start or 0, found.size if end is None else min(end, found.size)
        data = bytes(end - start) if found.data is None else found.data[start:end]
        self.world.bytes_read += len(data)
        return data


@dataclass
class SimulatedRequests:
    """See Requests: ``connections`` at once, in simulated time and one thread."""

    world: World
    connections: int = 64

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Also inside itself: then one after the other."""
        begun = self.world.now
        free = [begun] * self.connections
        results = []
        for item in items:
            slot = min(range(self.connections), key=free.__getitem__)
            self.world.now = free[slot]
            results.append(work(item))
            free[slot] = self.world.now
        self.world.now = max(free)
        return results

    def close(self) -> None:
        """Nothing."""


SEGMENT_BYTES = 100 << 20
SEGMENT_OFFSETS = 1_000_000
TOPIC_ID = UUID(int=7)


def index_table(batch_bytes: int = 4_100) -> bytes:
    """The offset index of a full segment whose batches have about this size."""
    chance = np.random.default_rng(7)
    sizes = chance.integers(batch_bytes // 2, batch_bytes * 2, SEGMENT_BYTES // batch_bytes)
    positions = np.cumsum(sizes)
    positions = positions[positions < SEGMENT_BYTES]
    offsets = np.linspace(50, SEGMENT_OFFSETS - 1, len(positions)).astype(np.int64)
    return pack_offset_entries(np.stack([offsets, positions], axis=1))


def plant(
    world: World, log_dir: str, topic: str, partitions: int, segments: int, batch_bytes: int = 4_100
) -> None:
    """Partitions with so many full segments each, and an active one with ten batches."""
    index = index_table(batch_bytes)
    end = segments * SEGMENT_OFFSETS
    lines = "".join(f"{topic} {number} {end}\n" for number in range(partitions))
    checkpoint = f"0\n{partitions}\n{lines}".encode()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        world.put(f"{log_dir}/{name}", checkpoint)
    active = b"".join(
        stored_batch([Record(end + each, TIME + end + each, b"k", b"v", ())]) for each in range(10)
    )
    for number in range(partitions):
        directory = f"{log_dir}/{topic}-{number}"
        files = world.directories.setdefault(directory, {})
        world.put(f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(TOPIC_ID))
        for segment in range(segments):
            base = segment * SEGMENT_OFFSETS
            stamps = np.array([[TIME + base + SEGMENT_OFFSETS - 1, SEGMENT_OFFSETS - 1]])
            files[f"{base:020d}.log"] = Obj(SEGMENT_BYTES)
            files[f"{base:020d}.index"] = Obj(len(index), index)
            files[f"{base:020d}.timeindex"] = Obj(12, pack_time_entries(stamps))
            files[f"{base:020d}.snapshot"] = Obj(10, bytes(10))
        files[f"{end:020d}.log"] = Obj(len(active), active)


def registered(world: World) -> Iterator[World]:
    """The body of a fixture: this world is behind ``latency://``."""
    fsspec.register_implementation("latency", LatencyStore, clobber=True)
    LatencyStore.world = world
    LatencyStore.clear_instance_cache()
    yield world
    LatencyStore.world = World()
