"""What crashes, disks and people do to a partition directory. Each takes it and a source of chance.

Every change keeps the file's mtime, which retention reads. No knowledge of the product in here.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Damage = Callable[[Path, random.Random], None]

HEADER_BYTES = 61
SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def name_of(damage: object) -> str:
    return str(getattr(damage, "__name__", damage)).replace("_", " ")


def logs(directory: Path) -> list[Path]:
    """Segments that hold data."""
    return [path for path in sorted(directory.glob("*.log")) if path.stat().st_size]


def middle(directory: Path) -> Path:
    """A segment that is not the last one, where there are two."""
    found = logs(directory)
    return found[(len(found) - 1) // 2]


@contextmanager
def edited(path: Path) -> Iterator[bytearray]:
    """The bytes of a file, written back afterwards."""
    stat, data = path.stat(), bytearray(path.read_bytes())
    yield data
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def batch_starts(data: bytes | bytearray) -> list[int]:
    """Where the batches of a sound log begin."""
    starts, position = [], 0
    while position + HEADER_BYTES <= len(data):
        starts.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return starts


def torn_tail(directory: Path, chance: random.Random) -> None:
    with edited(logs(directory)[-1]) as data:
        del data[chance.randrange(1, len(data)) :]


def torn_in_last_batch(directory: Path, chance: random.Random) -> None:
    with edited(logs(directory)[-1]) as data:
        last = batch_starts(data)[-1]
        del data[chance.randrange(last + 1, len(data)) :]


def torn_middle(directory: Path, chance: random.Random) -> None:
    with edited(middle(directory)) as data:
        del data[chance.randrange(len(data)) :]


def flipped_byte(directory: Path, chance: random.Random) -> None:
    """In the part of a batch that its CRC covers."""
    with edited(middle(directory)) as data:
        start = chance.choice(batch_starts(data))
        data[start + 17 + chance.randrange(44)] ^= 1 << chance.randrange(8)


def flipped_length(directory: Path, chance: random.Random) -> None:
    with edited(middle(directory)) as data:
        start = chance.choice(batch_starts(data))
        data[start + 8 + chance.randrange(4)] ^= 1 << chance.randrange(8)


def flipped_magic(directory: Path, chance: random.Random) -> None:
    """Negative: what Kafka's loader takes for v2 when it is above 2, its consumers do not."""
    with edited(middle(directory)) as data:
        data[chance.choice(batch_starts(data)) + 16] = chance.choice((0x82, 0xFF))


def other_epoch(directory: Path, chance: random.Random) -> None:
    """The leader epoch of a batch lies outside its CRC."""
    with edited(middle(directory)) as data:
        data[chance.choice(batch_starts(data)) + 15] = chance.randrange(1, 9)


def zeroed_tail(directory: Path, chance: random.Random) -> None:
    with edited(logs(directory)[-1]) as data:
        size = chance.randrange(1, min(600, len(data)))
        data[-size:] = bytes(size)


def zeros_behind(directory: Path, chance: random.Random) -> None:
    with edited(logs(directory)[-1]) as data:
        data += bytes(chance.choice((1, 11, 12, 17, 61, 4000)))


def noise_behind(directory: Path, chance: random.Random) -> None:
    with edited(logs(directory)[-1]) as data:
        data += chance.randbytes(chance.randrange(1, 3000))


def empty_last(directory: Path, _chance: random.Random) -> None:
    with edited(logs(directory)[-1]) as data:
        data.clear()


def no_offset_indexes(directory: Path, chance: random.Random) -> None:
    for path in sorted(directory.glob("*.index")):
        if chance.random() < 0.7:
            path.unlink()


def no_time_indexes(directory: Path, chance: random.Random) -> None:
    for path in sorted(directory.glob("*.timeindex")):
        if chance.random() < 0.7:
            path.unlink()


def no_indexes(directory: Path, _chance: random.Random) -> None:
    for path in (*directory.glob("*.*index"), *directory.glob("*.index")):
        path.unlink(missing_ok=True)


def garbled_indexes(directory: Path, chance: random.Random) -> None:
    for path in sorted((*directory.glob("*.index"), *directory.glob("*.timeindex"))):
        with edited(path) as data:
            if data and chance.random() < 0.7:
                del data[5000:]
                data[:] = chance.randbytes(chance.randrange(len(data) + 1))


def garbled_transaction_indexes(directory: Path, chance: random.Random) -> None:
    for path in sorted(directory.glob("*.txnindex")):
        with edited(path) as data:
            if chance.random() < 0.5:
                del data[-chance.randrange(1, 34) :]
            elif data:
                data[:] = chance.randbytes(len(data))
                for entry in range(0, len(data), 34):
                    data[entry : entry + 2] = bytes(2)  # with other versions Kafka does not start


def no_transaction_indexes(directory: Path, _chance: random.Random) -> None:
    for path in directory.glob("*.txnindex"):
        path.unlink()


def lonely_indexes(directory: Path, chance: random.Random) -> None:
    """Indexes whose log is gone."""
    base = chance.choice((1, 77, 10**9))
    for suffix in (".index", ".timeindex", ".txnindex"):
        (directory / f"{base:020d}{suffix}").write_bytes(bytes(chance.choice((0, 24, 34))))


def lost_segment(directory: Path, _chance: random.Random) -> None:
    middle(directory).unlink()


def left_deleted(directory: Path, chance: random.Random) -> None:
    for path in sorted(directory.iterdir()):
        if path.name[0].isdigit() and chance.random() < 0.4:
            shutil.copy2(path, f"{path}.deleted")


def left_cleaned(directory: Path, _chance: random.Random) -> None:
    for path in sorted(directory.glob(f"{middle(directory).stem}.*")):
        if path.suffix in SEGMENT_SUFFIXES:
            shutil.copy2(path, f"{path}.cleaned")


def swapped(directory: Path, _chance: random.Random) -> None:
    """A clean was about to take its final names; the originals of its range are still there."""
    for path in sorted(directory.glob(f"{middle(directory).stem}.*")):
        if path.suffix in SEGMENT_SUFFIXES:
            shutil.copy2(path, f"{path}.swap")


def half_renamed_swap(directory: Path, chance: random.Random) -> None:
    """The originals are gone, some of the swapped files have their final names."""
    for path in sorted(directory.glob(f"{middle(directory).stem}.*")):
        is_log = path.suffix == ".log"
        if path.suffix in SEGMENT_SUFFIXES and (is_log or chance.random() < 0.6):
            path.rename(f"{path}.swap")


def index_swap_alone(directory: Path, _chance: random.Random) -> None:
    for path in sorted(directory.glob(f"{middle(directory).stem}.*index")):
        path.rename(f"{path}.swap")


def swap_behind_cleaned(directory: Path, chance: random.Random) -> None:
    """A clean of several segments was cut short while they became .swap."""
    found = logs(directory)
    for place, log in enumerate(found):
        stage = ".cleaned" if place < len(found) // 2 else ".swap"
        for suffix in (".log", ".index", ".timeindex"):
            path = log.with_suffix(suffix)
            if path.exists() and chance.random() < 0.9:
                shutil.copy2(path, f"{path}{stage}")


def stray_snapshots(directory: Path, chance: random.Random) -> None:
    known = sorted(directory.glob("*.snapshot"))
    for offset in (3, 90, 10**6):
        target = directory / f"{offset:020d}.snapshot"
        shutil.copy2(chance.choice(known), target)


def broken_snapshots(directory: Path, chance: random.Random) -> None:
    for path in sorted(directory.glob("*.snapshot")):
        with edited(path) as data:
            if chance.random() < 0.6:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            elif chance.random() < 0.5:
                del data[chance.randrange(len(data)) :]


def newest_snapshot_broken(directory: Path, _chance: random.Random) -> None:
    with edited(max(directory.glob("*.snapshot"))) as data:
        data[-1] ^= 1


def no_snapshots(directory: Path, _chance: random.Random) -> None:
    for path in directory.glob("*.snapshot"):
        path.unlink()


def no_epochs(directory: Path, _chance: random.Random) -> None:
    (directory / "leader-epoch-checkpoint").unlink()


def wrong_epochs(directory: Path, chance: random.Random) -> None:
    entries = sorted((epoch, chance.randrange(400)) for epoch in range(4))
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    (directory / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")


def epochs_beyond_the_end(directory: Path, _chance: random.Random) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n2 40\n5 100000\n")


def garbled_epochs(directory: Path, chance: random.Random) -> None:
    (directory / "leader-epoch-checkpoint").write_bytes(chance.randbytes(30))


def nothing_left(directory: Path, _chance: random.Random) -> None:
    for path in directory.iterdir():
        if path.name[0].isdigit():
            path.unlink()


ALL: tuple[Damage, ...] = (
    torn_tail,
    torn_in_last_batch,
    torn_middle,
    flipped_byte,
    flipped_length,
    flipped_magic,
    other_epoch,
    zeroed_tail,
    zeros_behind,
    noise_behind,
    empty_last,
    no_offset_indexes,
    no_time_indexes,
    no_indexes,
    garbled_indexes,
    garbled_transaction_indexes,
    no_transaction_indexes,
    lonely_indexes,
    lost_segment,
    left_deleted,
    left_cleaned,
    swapped,
    half_renamed_swap,
    index_swap_alone,
    swap_behind_cleaned,
    stray_snapshots,
    broken_snapshots,
    newest_snapshot_broken,
    no_snapshots,
    no_epochs,
    wrong_epochs,
    epochs_beyond_the_end,
    garbled_epochs,
    nothing_left,
)
