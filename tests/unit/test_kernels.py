"""Goal: kernels start fast and never stale; loads and stores read what struct writes.
Method: the cache in a directory of its own, seen from fresh interpreters; every width and shift;
arguments of every wrong kind.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from llvmlite import binding

import kafkalog.kernels as package
from kafkalog.kernels import KERNEL_MODULES, cache, image, link, processor
from kafkalog.kernels.compile import BUILT_KERNELS, IS_COMPILING, JIT_DISABLED
from kafkalog.kernels.records import batch_scan, record_scan

if TYPE_CHECKING:
    from collections.abc import Callable

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


WARM_UP = """
import sys, kafkalog.kernels
result = kafkalog.kernels.warm_up()
print(result.image, result.compiled, "numba" in sys.modules, "llvmlite" in sys.modules)
"""


def fresh(cache_root: Path, **more: str) -> dict[str, str]:
    """The environment of an interpreter with a kernel cache of its own."""
    root = str(Path(package.__file__).parents[2])
    return {**os.environ, "KAFKALOG_KERNEL_CACHE": str(cache_root), "PYTHONPATH": root, **more}


def start(cache_root: Path, program: str = REPORT) -> str:
    """What a fresh interpreter prints; without a program, of the index kernel."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=fresh(cache_root),
        capture_output=True,
        text=True,
        check=True,
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


def test_kernels_use_the_numbers_of_their_enums() -> None:
    for enum in (batch_scan.BatchColumn, batch_scan.ScanStop):
        for member in enum:
            assert getattr(batch_scan, f"_{member.name}") == member.value


@pytest.mark.parametrize("jit_disabled", ["0", "1"])
def test_loads_and_stores_equal_struct(tmp_path: Path, jit_disabled: str) -> None:
    """Compiled, and as plain Python."""
    program = [sys.executable, "-m", "tests.unit.kernel_loads"]
    subprocess.run(program, env=fresh(tmp_path, NUMBA_DISABLE_JIT=jit_disabled), check=True)


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


def test_the_processor_is_known_without_llvm() -> None:
    features = binding.get_host_cpu_features()
    level = processor.ProcessorLevel.GENERIC
    if features.get("sse4.2") and features.get("avx2"):
        level = processor.ProcessorLevel.AVX512VL if features.get("avx512vl") else level.AVX2
    assert (level if processor.IS_X86 else 0) == processor.LEVEL


needs_image = pytest.mark.skipif(
    not image.IS_SUPPORTED or JIT_DISABLED or IS_COMPILING, reason="no image here"
)


@needs_image
def test_the_image_replaces_numba_and_is_written_again_when_damaged(tmp_path: Path) -> None:
    """Numba's cache is warm: an image is linked of it, and serves the next start alone."""
    module = "records.index_build"
    directory = cache.cache_directory(module)
    assert directory is not None
    root, name = tmp_path / "cache", cache.image_name()
    shutil.copytree(Path(directory).parent, root, ignore=shutil.ignore_patterns("image-*"))
    assert start(root, WARM_UP) == "written 0 True True"
    assert start(root, WARM_UP) == "loaded 0 False False"
    whole = (root / name).read_bytes()
    damaged = whole[:5000] + b"\0" + whole[5001:]
    (root / name).write_bytes(damaged)
    assert start(root, WARM_UP) == "written 0 True True"
    assert (root / name).read_bytes() == whole
    for broken in (b"", whole[:-1], damaged):
        with pytest.raises((ValueError, struct.error)):
            image.functions(broken)
    assert image.functions(whole).keys() == {f"{k.module}:{k.name}" for k in BUILT_KERNELS}


@needs_image
def test_an_image_that_a_wheel_brought_serves_until_a_root_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other sources or tools it has another name, and is not found."""
    directory = cache.cache_directory("records.index_build")
    assert directory is not None
    whole = (Path(directory).parent / cache.image_name()).read_bytes()
    prebuilt = tmp_path / "prebuilt"
    prebuilt.mkdir()
    monkeypatch.setattr(cache, "_PREBUILT", str(prebuilt))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KAFKALOG_KERNEL_CACHE", raising=False)
    (prebuilt / "image-0123456789abcdef").write_bytes(whole)
    assert image.load() is None
    (prebuilt / cache.image_name()).write_bytes(whole)
    loaded = image.load()
    assert loaded is not None
    assert loaded.keys() == {f"{k.module}:{k.name}" for k in BUILT_KERNELS}
    monkeypatch.setenv("KAFKALOG_KERNEL_CACHE", str(tmp_path / "named"))
    assert image.load() is None


def test_the_wheel_is_made_by_the_tools_that_it_depends_on() -> None:
    """Its machine code counts only with them: pyproject, the requirements and the lock agree."""
    root = Path(package.__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    made_by = {each for each in project["build-system"]["requires"] if "==" in each}
    wanted = (root / "requirements/run.in").read_text("utf-8").splitlines()
    assert made_by == {each for each in wanted if "==" in each}
    locked = (root / "requirements/run.txt").read_text("utf-8")
    for each in made_by:
        name_and_version = each.partition(";")[0].strip()
        assert f"\n{name_and_version} " in locked, each


@needs_image
def test_a_kernel_refuses_arguments_that_its_code_does_not_fit() -> None:
    """It is called with addresses: what it takes for an array must be one of its kind."""
    data, table = np.zeros(80, np.uint8), np.zeros((3, 9), np.int64)
    assert batch_scan.count_batches(data, True, 0) == 0
    frozen = data.copy()
    frozen.flags.writeable = False
    assert batch_scan.count_batches(frozen, 0, 0) == 0
    count: Callable[..., int] = batch_scan.count_batches
    assert count(data, np.int64(0), 0) == 0
    others: tuple[object, ...] = (
        data.view(np.int8),
        data[::2],
        data.reshape(8, 10),
        "text",
        None,
        b"bytes",
        0,
    )
    for other in others:
        with pytest.raises(TypeError):
            count(other, 0, 0)
    for arguments in ((data, 0), (data, 0, 0, 0), (data, "0", 0), (data, 0, None)):
        with pytest.raises(TypeError):
            count(*arguments)
    with pytest.raises(OverflowError):
        count(data, 1 << 64, 0)
    assert record_scan.scan_records(data[:0], 1, table) < 0
    scan: Callable[..., int] = record_scan.scan_records
    read_only = table.copy()
    read_only.flags.writeable = False
    unaligned = np.zeros(9 * 8 + 1, np.uint8)[1:].view(np.int64).reshape(1, 9)
    swapped, turned = table.astype(">i8"), np.zeros((9, 3), np.int64).T
    for wrong in (read_only, unaligned, swapped, turned, table[0], table.astype(np.int32)):
        with pytest.raises(TypeError):
            scan(data, 1, wrong)


@needs_image
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("declare void @unknown() define void @f() { call void @unknown() ret void }", "unknown"),
        ("@f = thread_local global i64 1 define ptr @g() { ret ptr @f }", "relocation"),
    ],
)
def test_code_of_an_unknown_kind_is_not_linked(text: str, fault: str) -> None:
    """Nothing is called that was not resolved."""
    with pytest.raises(link.CannotLink, match=fault):
        link.Linker().add(link.compiled(text), set())
    with pytest.raises(link.CannotLink, match="ELF"):
        link.Linker().add(b"", set())


@needs_image
def test_an_image_that_cannot_be_made_fails_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left behind. Here the kernels come from the image: there is no object to link."""
    monkeypatch.setenv("KAFKALOG_KERNEL_CACHE", str(tmp_path))
    assert not link.write_image()
    assert list(tmp_path.iterdir()) == []
