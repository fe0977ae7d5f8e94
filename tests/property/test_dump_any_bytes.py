"""Goal: the dump tool ends with output or a named damage for any bytes, never with another error.
Method: Kafka's golden files with bytes overwritten, cut or added at random places.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from kafkalog.cli.offline.dump import DumpOptions, dump
from kafkalog.errors import CorruptData
from kafkalog.format.integers import FormatError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dump" / "t-0"
NAMES = sorted(path.name for path in GOLDEN.iterdir())
EDITS = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4), st.booleans()), max_size=4)


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("any") / "t-0"
    shutil.copytree(GOLDEN, copy)
    return copy


@given(st.sampled_from(NAMES), EDITS, st.booleans())
def test_any_damage_is_named(
    partition: Path, name: str, edits: list[tuple[float, bytes, bool]], sanity: bool
) -> None:
    data = bytearray((GOLDEN / name).read_bytes())
    for where, replacement, inserts in edits:
        position = int(where * len(data))
        data[position : position if inserts else position + len(replacement)] = replacement
    (partition / name).write_bytes(data)
    options = DumpOptions(print_data_log=True, index_sanity_check=sanity)
    try:
        for dumped in NAMES:
            with contextlib.suppress(CorruptData, FormatError):
                dump([str(partition / dumped)], options, io.StringIO(), io.StringIO())
    finally:
        (partition / name).write_bytes((GOLDEN / name).read_bytes())
