"""Goal: kernels start fast and never stale; loads and stores read what struct writes.
Method: the cache in a directory of its own, seen from fresh interpreters; every width and shift.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import types

import kafkalog.kernels as package
from kafkalog.kernels import KERNEL_MODULES, cache, loads
from kafkalog.kernels.compile import BYTES, BYTES_OUT, I64, JIT_DISABLED, U64, Bytes, kernel
from kafkalog.kernels.records import batch_scan

REPORT = """
import sys, kafkalog.kernels
assert "numba" not in sys.modules
import kafkalog.kernels.records.index_build
from kafkalog.kernels.compile import BUILT_KERNELS
from numba import config
assert (config.CPU_NAME, config.CPU_FEATURES) == ("generic", "")
print([kernel.from_cache for kernel in BUILT_KERNELS if "index_build" in kernel.module])
"""

needs_jit = pytest.mark.skipif(JIT_DISABLED, reason="the JIT is off")


def start(cache_root: Path) -> str:
    """What a fresh interpreter says of the index kernel."""
    root = Path(package.__file__).parents[2]
    environment = {**os.environ, "KAFKALOG_KERNEL_CACHE": str(cache_root), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.slow
@needs_jit
def test_second_start_compiles_nothing_and_damage_heals(tmp_path: Path) -> None:
    """Cold: compiled. Warm: from the cache. Cut-off cache files: compiled again, then cached."""
    assert start(tmp_path) == "[False]"
    assert start(tmp_path) == "[True]"
    for name in tmp_path.glob("records.index_build-*/*.nbc"):
        name.write_bytes(b"")
    assert start(tmp_path) == "[False]"
    assert start(tmp_path) == "[True]"


@pytest.mark.slow
@needs_jit
def test_an_unusable_cache_costs_the_compilation_only(tmp_path: Path) -> None:
    """A file stands where the cache root should be."""
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    assert start(blocked) == "[False]"


def test_a_filled_directory_is_used_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKALOG_KERNEL_CACHE", str(tmp_path / "absent" / "below"))
    directory = cache.cache_directory("records.index_build")
    assert directory is not None
    assert (
        Path(directory).name == f"records.index_build-{cache.source_digest('records.index_build')}"
    )
    (tmp_path / "blocker").write_text("", encoding="utf-8")
    monkeypatch.setenv("KAFKALOG_KERNEL_CACHE", str(tmp_path / "blocker"))
    assert cache.cache_directory("records.index_build") is None
    assert cache.cache_root() is None


def test_a_start_loads_no_kernel_of_a_package_that_is_not_installed() -> None:
    """Set-up compiles it all the same."""
    assert package.modules_of_use(lambda name: True) == KERNEL_MODULES
    left_out = set(KERNEL_MODULES) - set(package.modules_of_use(lambda name: False))
    assert left_out == {"kafkalog.kernels.records.arrow_columns"}


def test_kernels_use_the_numbers_of_their_enums() -> None:
    for enum in (batch_scan.BatchColumn, batch_scan.ScanStop):
        for member in enum:
            assert getattr(batch_scan, f"_{member.name}") == member.value


@kernel(I64(BYTES, I64))
def _signed(data: Bytes, at: int) -> int:
    """Every signed and narrow load, folded."""
    return (
        loads.load_i16be(data, at)
        + 3 * loads.load_u16be(data, at)
        + 5 * loads.load_i32be(data, at)
        + 7 * loads.load_u32be(data, at)
        + 11 * loads.load_u16le(data, at)
        + 13 * loads.load_i32le(data, at)
        + 17 * loads.load_u32le(data, at)
    )


@kernel(U64(BYTES, I64))
def _wide_big(data: Bytes, at: int) -> int:
    return loads.load_u64be(data, at)


@kernel(U64(BYTES, I64))
def _wide_little(data: Bytes, at: int) -> int:
    return loads.load_u64le(data, at)


@kernel(I64(BYTES, I64))
def _wide_signed(data: Bytes, at: int) -> int:
    return loads.load_i64be(data, at)


@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x80, 0x7F])
@pytest.mark.parametrize("at", range(9))
def test_loads_equal_struct(fill: int, at: int) -> None:
    raw = bytes((fill + 37 * i * (fill & 1)) & 255 for i in range(17))
    data = np.frombuffer(raw, dtype=np.uint8)
    i2, u2, i4, u4 = (struct.unpack_from(f, raw, at)[0] for f in (">h", ">H", ">i", ">I"))
    l2, s4, l4 = (struct.unpack_from(f, raw, at)[0] for f in ("<H", "<i", "<I"))
    assert _signed(data, at) == i2 + 3 * u2 + 5 * i4 + 7 * u4 + 11 * l2 + 13 * s4 + 17 * l4
    assert _wide_big(data, at) == struct.unpack_from(">Q", raw, at)[0]
    assert _wide_little(data, at) == struct.unpack_from("<Q", raw, at)[0]
    assert _wide_signed(data, at) == struct.unpack_from(">q", raw, at)[0]


@kernel(types.none(BYTES_OUT, I64, I64))
def _store_all(data: Bytes, at: int, value: int) -> None:
    """Every store, back to back."""
    loads.store_i16be(data, at, value)
    loads.store_i32be(data, at + 2, value)
    loads.store_i64be(data, at + 6, value)
    loads.store_u16le(data, at + 14, value)
    loads.store_u32le(data, at + 16, value)
    loads.store_u64le(data, at + 20, value)


@pytest.mark.parametrize("value", [0, -1, 1, 2**63 - 1, -(2**63), 0x0123456789ABCDEF])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_stores_equal_struct(value: int, at: int) -> None:
    data = np.full(32, 0xAA, dtype=np.uint8)
    _store_all(data, at, value)
    unsigned = value % 2**64
    big, small = unsigned.to_bytes(8, "big"), unsigned.to_bytes(8, "little")
    written = big[6:] + big[4:] + big + small[:2] + small[:4] + small
    assert bytes(data) == b"\xaa" * at + written + b"\xaa" * (4 - at)


def test_a_change_in_an_imported_module_changes_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(Path(package.__file__).parent, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(cache, "_SOURCE_DIRECTORY", str(tmp_path))
    seen = []
    for changed in ("nothing", "records/record_build", "records/batch_scan", "loads"):
        with (tmp_path / f"{changed}.py").open("a", encoding="utf-8") as text:
            text.write("# another line\n")
        cache.source_digest.cache_clear()
        seen.append(cache.source_digest("records.index_build"))
    cache.source_digest.cache_clear()
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3


def test_warm_up_tells_each_module_and_counts_each_kernel() -> None:
    told: list[tuple[str, int, int]] = []
    result = package.warm_up(lambda module, done, total: told.append((module, done, total)))
    total = len(KERNEL_MODULES)
    assert [module for module, _, _ in told] == [*KERNEL_MODULES, ""]
    assert [done for _, done, _ in told] == list(range(total + 1))
    if JIT_DISABLED:
        assert (result.compiled, result.cached) == (0, 0)
    else:
        assert result.compiled + result.cached >= total
