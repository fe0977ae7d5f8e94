"""Goal: rows of keys come back as they were written, or an error does.
Method: a simulated disk.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kafkalog.spark.jobs.key_rows import (
    ROW_BYTES,
    RowFile,
    RowRange,
    parts_by_hash,
    read_part,
    read_rows,
)
from tests.sim.sim_filesystem import SimFilesystem


def rows_of(*numbers: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array([(-each, each * 7, each) for each in numbers], np.int64).reshape(-1, 3)


def both_parts(path: str, disk: SimFilesystem) -> list[list[list[int]]]:
    return [read_part([path], part, disk).tolist() for part in range(2)]


def test_rows_come_back_by_parts() -> None:
    """Goal: every part is what was written to it, also an empty one.
    Method: two blocks of three parts each, and rows in none; read by name and number alone.
    """
    disk = SimFilesystem()
    file = RowFile("/keys", disk)
    file.append_parts([rows_of(1, 2), rows_of(), rows_of(3)])
    file.append_parts([rows_of(), rows_of(4), rows_of(5, 6)])
    assert file.row_count == 6
    assert file.append(rows_of(7, 8)) == 8
    file.close()
    found = [read_part(["/keys"], part, disk).tolist() for part in range(3)]
    assert found == [rows_of(*each).tolist() for each in ((1, 2), (4,), (3, 5, 6))]
    both = read_part(["/keys", "/keys"], 1, disk)
    assert both.tolist() == rows_of(4, 4).tolist()
    assert read_rows([RowRange("/keys", 6, 8)], disk).tolist() == rows_of(7, 8).tolist()
    assert read_rows([], disk).shape == (0, 3)


def test_a_file_without_blocks_has_no_parts() -> None:
    """Goal: a group without keys is none of an error.
    Method: a file that only has rows of events.
    """
    disk = SimFilesystem()
    file = RowFile("/keys", disk)
    file.append(rows_of(1))
    file.close()
    assert read_part(["/keys"], 5, disk).shape == (0, 3)


def test_all_rows_of_a_key_are_in_one_part() -> None:
    """Goal: parts hold every row once, and what belongs together together.
    Method: negative halves of hashes among them, each key three times.
    """
    rows = np.concatenate([rows_of(*range(-20, 20))] * 3)
    parts = parts_by_hash(rows, 7)
    assert len(parts) == 7
    assert sorted(np.concatenate(parts).tolist()) == sorted(rows.tolist())
    keys = [{tuple(row[:2]) for row in part.tolist()} for part in parts]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 40
    assert [len(each) for each in parts_by_hash(rows_of(), 3)] == [0, 0, 0]


def test_a_file_that_was_changed_is_an_error() -> None:
    """Goal: no key is lost without a word, and no number out of a file is taken on trust.
    Method: the file ends at every byte; each number of its index is another one.
    """
    disk = SimFilesystem()
    file = RowFile("/keys", disk)
    file.append_parts([rows_of(1, 2), rows_of(3)])
    file.close()
    whole = disk.read_file("/keys")
    rows_bytes = 3 * ROW_BYTES
    for size in range(len(whole)):
        disk.write_file_atomically("/cut", whole[:size])
        with pytest.raises(OSError, match="ends early"):
            both_parts("/cut", disk)
    for number, value in itertools.product(range(6), (-(1 << 63), -1, 99, (1 << 63) - 1)):
        at = rows_bytes + 8 * number
        changed = whole[:at] + value.to_bytes(8, "little", signed=True) + whole[at + 8 :]
        disk.write_file_atomically("/other", changed)
        with pytest.raises(OSError, match="ends early"):
            both_parts("/other", disk)
    twice_negative = b"".join((each & (1 << 64) - 1).to_bytes(8, "little") for each in (3, -1, -4))
    disk.write_file_atomically("/other", whole[:-24] + twice_negative)
    for path, part in (("/keys", 2), ("/keys", -1), ("/other", 0)):
        with pytest.raises(OSError, match="ends early"):
            read_part([path], part, disk)


def test_rows_that_went_are_an_error() -> None:
    """Goal: a range that reaches behind the file is told.
    Method: the last byte goes.
    """
    disk = SimFilesystem()
    file = RowFile("/keys", disk)
    file.append(rows_of(1, 2))
    file.close()
    disk.open_write("/keys").truncate(2 * ROW_BYTES - 1)
    with pytest.raises(OSError, match="ends early"):
        read_rows([RowRange("/keys", 0, 2)], disk)
