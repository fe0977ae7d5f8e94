"""Goal: rows of keys come back as they were written, or an error does.
Method: a simulated disk.
"""

from __future__ import annotations

import numpy as np
import pytest

from kafkalog.spark.jobs.key_rows import ROW_BYTES, RowFile, RowRange, parts_by_hash, read_rows
from tests.sim.sim_filesystem import SimFilesystem


def rows_of(*numbers: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array([(-each, each * 7, each) for each in numbers], np.int64).reshape(-1, 3)


def test_rows_come_back_by_parts() -> None:
    """Goal: every range is what was written there, also an empty one.
    Method: two calls with three parts each, read in another order.
    """
    disk = SimFilesystem()
    file = RowFile("/keys", disk)
    first = file.append([rows_of(1, 2), rows_of(), rows_of(3)])
    second = file.append([rows_of(), rows_of(4), rows_of(5, 6)])
    file.close()
    assert (first, second) == ((0, 2, 2, 3), (3, 3, 4, 6))
    ranges = [RowRange("/keys", 4, 6), RowRange("/keys", 2, 2), RowRange("/keys", 0, 2)]
    assert read_rows(ranges, disk).tolist() == rows_of(5, 6, 1, 2).tolist()
    assert read_rows([], disk).shape == (0, 3)


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


def test_a_file_that_was_cut_is_an_error() -> None:
    """Goal: no key is lost without a word.
    Method: the last byte goes.
    """
    disk = SimFilesystem()
    file = RowFile("/keys", disk)
    file.append([rows_of(1, 2)])
    file.close()
    disk.open_write("/keys").truncate(2 * ROW_BYTES - 1)
    with pytest.raises(OSError, match="ends before row 2"):
        read_rows([RowRange("/keys", 0, 2)], disk)
