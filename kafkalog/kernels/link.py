"""Writes the image of all kernels: what numba compiled, joined, with a function around each kernel.

numba keeps one ELF object per kernel, in code of the large model: every relocation is an address of
64 bits. Joining means to lay the sections one behind the other and to note where addresses go. An
object with anything else is refused: no image is written then, and each start uses numba.

The function around a kernel checks its arguments as numba's dispatcher does: type, dimensions,
item, byte order, C order, alignment, writable or not. It then calls by numba's convention: a place
for the result, one for an exception (kernels raise none), and for each array its parts.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import binding

from kafkalog.kernels import cache, image, jit
from kafkalog.kernels.compile import BOOL, BUILT_KERNELS, I64
from kafkalog.kernels.signature import Array

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.kernels.signature import BuiltKernel, Scalar

# Numbers of the ELF format.
_BITS, _SYMBOLS, _NAMES, _RELOCATIONS, _NO_BITS = 1, 2, 3, 4, 8
_ALLOCATED = 0x2
_UNDEFINED = 0
_ABSOLUTE_64 = 1

_NEVER_CALLED = ("_ZN7cpython", "cfunc.")
"""numba's own functions around the kernels; they come along and stay unfinished."""
_USABLE = frozenset(
    """PyArray_Type PyErr_Occurred PyErr_SetString PyEval_RestoreThread PyEval_SaveThread
    PyExc_SystemError PyExc_TypeError PyLong_AsLongLong PyLong_FromLongLong PyObject_IsTrue
    memcpy memmove memset""".split()
)

# numpy: type number and bytes of an item. int64 is `long` or `long long`.
_ITEMS = {"uint8": (2, 2, 1), "int32": (5, 5, 4), "int64": (7, 9, 8)}
_C_ORDER_AND_ALIGNED, _WRITABLE = 0x101, 0x400
# PyArrayObject and PyArray_Descr, fixed by numpy's ABI: places of their members.
_DATA, _DIMENSION_COUNT, _SHAPE, _STRIDES, _DESCR, _FLAGS = 16, 24, 32, 40, 56, 64
_BYTE_ORDER, _TYPE_NUMBER = 26, 28

_HEADER = f"""
@PyArray_Type = external global i8
@PyExc_TypeError = external global ptr
@PyExc_SystemError = external global ptr
@mistyped = private constant [37 x i8] c"arguments do not match the signature\\00"
@failed = private constant [14 x i8] c"kernel failed\\00"
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i32 @PyObject_IsTrue(ptr)

define private i1 @is_array(ptr %o, i32 %dimensions, i32 %flags, i32 %number, i32 %other) {{
  %type.at = getelementptr i8, ptr %o, i64 8
  %type = load ptr, ptr %type.at
  %is.array = icmp eq ptr %type, @PyArray_Type
  br i1 %is.array, label %array, label %no
array:
  %dimensions.at = getelementptr i8, ptr %o, i64 {_DIMENSION_COUNT}
  %its.dimensions = load i32, ptr %dimensions.at
  %flags.at = getelementptr i8, ptr %o, i64 {_FLAGS}
  %its.flags = load i32, ptr %flags.at
  %wanted.flags = and i32 %its.flags, %flags
  %descr.at = getelementptr i8, ptr %o, i64 {_DESCR}
  %descr = load ptr, ptr %descr.at
  %number.at = getelementptr i8, ptr %descr, i64 {_TYPE_NUMBER}
  %its.number = load i32, ptr %number.at
  %order.at = getelementptr i8, ptr %descr, i64 {_BYTE_ORDER}
  %its.order = load i8, ptr %order.at
  %ok.dimensions = icmp eq i32 %its.dimensions, %dimensions
  %ok.flags = icmp eq i32 %wanted.flags, %flags
  %ok.number = icmp eq i32 %its.number, %number
  %ok.other = icmp eq i32 %its.number, %other
  %ok.order = icmp ne i8 %its.order, {ord(">")}
  %ok.item = or i1 %ok.number, %ok.other
  %ok.1 = and i1 %ok.dimensions, %ok.flags
  %ok.2 = and i1 %ok.item, %ok.order
  %ok = and i1 %ok.1, %ok.2
  ret i1 %ok
no:
  ret i1 false
}}
"""

_FUNCTION_TEXT = """
declare i32 @"{kernel}"({types})
define ptr @"{name}"(ptr %self, ptr %arguments, i64 %count) {{
  %result.at = alloca i64
  %exception.at = alloca ptr
  %ok.count = icmp eq i64 %count, {count}
  br i1 %ok.count, label %begin, label %mistyped
begin:
{unpack}
{release}
  %status = call i32 @"{kernel}"({values})
{acquire}
  %ok.status = icmp eq i32 %status, 0
  br i1 %ok.status, label %done, label %failed
done:
  %result = load i64, ptr %result.at
  %number = call ptr @PyLong_FromLongLong(i64 %result)
  ret ptr %number
mistyped:
  %type.error = load ptr, ptr @PyExc_TypeError
  call void @PyErr_SetString(ptr %type.error, ptr @mistyped)
  br label %raised
failed:
  %system.error = load ptr, ptr @PyExc_SystemError
  call void @PyErr_SetString(ptr %system.error, ptr @failed)
  br label %raised
raised:
  ret ptr null
}}
"""


class CannotLink(Exception):
    """An object holds what the image cannot hold; numba serves."""


def write_image() -> bool:
    """Write the image of all kernels of this process into the cache's root, by rename.

    False when it cannot be made (a full disk, a numba that works in another way): numba serves.
    """
    root = cache.cache_root()
    if root is None or not image.IS_SUPPORTED:
        return False
    path = os.path.join(root, cache.image_name())
    unfinished = f"{path}.{os.getpid()}"
    try:
        content = _image(BUILT_KERNELS)
        with open(unfinished, "wb") as file:
            file.write(content)
        os.replace(unfinished, path)
    except Exception:  # noqa: BLE001 - what numba's inside makes of it; a start must not fail
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        return False
    return True


def _image(kernels: Iterable[BuiltKernel]) -> bytes:
    """CannotLink when a kernel's code is not in numba's cache or is of an unknown kind."""
    if not _is_layout_known():
        raise CannotLink("numpy keeps its arrays in another way")
    linker, texts, names = Linker(), [_HEADER], {}
    for kernel in kernels:
        symbol, code = jit.machine_code(kernel)
        names[f"{kernel.module}:{kernel.name}"] = f"call.{symbol}"
        texts.append(_function_text(kernel, symbol))
        linker.add(code, exported={symbol})
    linker.add(compiled("".join(texts)), exported=set(names.values()))
    places = {name: linker.exported[symbol] for name, symbol in names.items()}
    table = {"kernels": places, "relative": linker.relative, "symbols": linker.symbols}
    text = json.dumps(table).encode()
    rest = struct.pack("<I", len(text)) + text + bytes(linker.code)
    return struct.pack("<I", zlib.crc32(rest)) + rest


def _is_layout_known() -> bool:
    """Whether the members of an array are where the functions look for them."""
    array = np.zeros((3, 5), np.int64)
    members = ctypes.string_at(id(array), _FLAGS + 4)
    data, dimension_count, shape = struct.unpack_from("<QixxxxQ", members, _DATA)
    (descr, flags) = struct.unpack_from("<QI", members, _DESCR)
    (number,) = struct.unpack("<i", ctypes.string_at(descr + _TYPE_NUMBER, 4))
    return (
        (data, dimension_count, flags) == (array.ctypes.data, array.ndim, array.flags.num)
        and struct.unpack("<qq", ctypes.string_at(shape, 16)) == array.shape
        and (descr, number) == (id(array.dtype), array.dtype.num)
    )


def compiled(text: str) -> bytes:
    """LLVM's assembly as an object of the large code model."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(text)
    module.verify()
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=cache.CPU_NAME, opt=2, reloc="static", codemodel="large"
    )
    return bytes(machine.emit_object(module))


def _function_text(kernel: BuiltKernel, symbol: str) -> str:
    """The function around one kernel."""
    unpack, passed = [], [("ptr", "%result.at"), ("ptr", "%exception.at")]
    for at, kind in enumerate(kernel.signature.arguments):
        unpack += [f"  %p{at} = getelementptr ptr, ptr %arguments, i64 {at}"]
        unpack += [f"  %o{at} = load ptr, ptr %p{at}"]
        lines, values = _array_text(at, kind) if isinstance(kind, Array) else _number_text(at, kind)
        unpack += lines
        passed += values
    if kernel.signature.result != I64 or jit.argument_kinds(kernel) != [kind for kind, _ in passed]:
        raise CannotLink(f"{kernel.name} is called in another way")
    return _FUNCTION_TEXT.format(
        kernel=symbol,
        name=f"call.{symbol}",
        count=len(kernel.signature.arguments),
        types=", ".join(kind for kind, _ in passed),
        values=", ".join(" ".join(each) for each in passed),
        unpack="\n".join(unpack),
        release="" if kernel.keeps_gil else "  %thread = call ptr @PyEval_SaveThread()",
        acquire="" if kernel.keeps_gil else "  call void @PyEval_RestoreThread(ptr %thread)",
    )


def _array_text(at: int, kind: Array) -> tuple[list[str], list[tuple[str, str]]]:
    """Check an array and take it apart: numba's order is owner, items, data, shape, strides."""
    number, other, item_bytes = _ITEMS[kind.name]
    flags = _C_ORDER_AND_ALIGNED | (_WRITABLE if kind.is_written else 0)
    checked = f"ptr %o{at}, i32 {kind.dimensions}, i32 {flags}, i32 {number}, i32 {other}"
    lines = [
        f"  %is{at} = call i1 @is_array({checked})",
        f"  br i1 %is{at}, label %is{at}.yes, label %mistyped",
        f"is{at}.yes:",
    ]
    for name, place in (("data", _DATA), ("shape", _SHAPE), ("strides", _STRIDES)):
        lines += [f"  %{name}{at}.at = getelementptr i8, ptr %o{at}, i64 {place}"]
        lines += [f"  %{name}{at} = load ptr, ptr %{name}{at}.at"]
    for name in ("shape", "strides"):
        for axis in range(kind.dimensions):
            lines += [f"  %{name}{at}.{axis}.at = getelementptr i64, ptr %{name}{at}, i64 {axis}"]
            lines += [f"  %{name}{at}.{axis} = load i64, ptr %{name}{at}.{axis}.at"]
    items = f"%shape{at}.0"
    for axis in range(1, kind.dimensions):
        lines += [f"  %items{at}.{axis} = mul i64 {items}, %shape{at}.{axis}"]
        items = f"%items{at}.{axis}"
    values = [("ptr", "null"), ("ptr", "null"), ("i64", items), ("i64", str(item_bytes))]
    values += [("ptr", f"%data{at}")]
    values += [("i64", f"%shape{at}.{axis}") for axis in range(kind.dimensions)]
    values += [("i64", f"%strides{at}.{axis}") for axis in range(kind.dimensions)]
    return lines, values


def _number_text(at: int, kind: Scalar) -> tuple[list[str], list[tuple[str, str]]]:
    """An integer or a truth value; -1 may be an error."""
    if kind == BOOL:
        call, width = f"call i32 @PyObject_IsTrue(ptr %o{at})", "i32"
    elif kind == I64:
        call, width = f"call i64 @PyLong_AsLongLong(ptr %o{at})", "i64"
    else:
        raise CannotLink(f"no function takes {kind}")
    lines = [
        f"  %v{at} = {call}",
        f"  %minus{at} = icmp eq {width} %v{at}, -1",
        f"  br i1 %minus{at}, label %minus{at}.yes, label %value{at}",
        f"minus{at}.yes:",
        f"  %error{at} = call ptr @PyErr_Occurred()",
        f"  %none{at} = icmp eq ptr %error{at}, null",
        f"  br i1 %none{at}, label %value{at}, label %raised",
        f"value{at}:",
    ]
    if kind == I64:
        return lines, [("i64", f"%v{at}")]
    return [*lines, f"  %b{at} = trunc i32 %v{at} to i8"], [("i8", f"%b{at}")]


@dataclass(frozen=True, slots=True)
class _Section:
    """A row of an ELF object's table of sections."""

    kind: int
    flags: int
    offset: int
    size: int
    info: int
    alignment: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    """A row of its table of symbols."""

    name: str
    section: int
    value: int
    size: int

    def holds(self, section: int, offset: int) -> bool:
        """Whether this place of a section is inside the function."""
        return section == self.section and self.value <= offset < self.value + self.size


class Linker:
    """Lays objects one behind the other."""

    def __init__(self) -> None:
        self.code = bytearray()
        self.relative: list[int] = []  # places of addresses inside the code
        self.symbols: dict[str, list[int]] = {}  # places of addresses of the process
        self.exported: dict[str, int] = {}  # what later objects and the image may use

    def add(self, elf: bytes, exported: set[str]) -> None:
        """One object. Raises CannotLink."""
        if elf[:6] != b"\x7fELF\x02\x01":
            raise CannotLink("not an ELF object of 64 bits")
        sections = _sections(elf)
        symbols = _symbols(elf, sections)
        starts = {
            number: self._lay(elf, section)
            for number, section in enumerate(sections)
            if section.flags & _ALLOCATED and section.kind in (_BITS, _NO_BITS)
        }
        for symbol in symbols:
            if symbol.name in exported and symbol.section in starts:
                self.exported[symbol.name] = starts[symbol.section] + symbol.value
        unused = [each for each in symbols if each.name.startswith(_NEVER_CALLED)]
        for section in sections:
            if section.kind != _RELOCATIONS or section.info not in starts:
                continue
            rows = elf[section.offset : section.offset + section.size]
            for offset, info, addend in struct.iter_unpack("<QQq", rows):
                if any(each.holds(section.info, offset) for each in unused):
                    continue
                if info & 0xFFFFFFFF != _ABSOLUTE_64:
                    raise CannotLink("a relocation that is no address of 64 bits")
                self._relocate(starts[section.info] + offset, symbols[info >> 32], starts, addend)

    def _lay(self, elf: bytes, section: _Section) -> int:
        """Append a section; where it begins."""
        self.code += bytes(-len(self.code) % section.alignment)
        start = len(self.code)
        is_empty = section.kind == _NO_BITS
        content = elf[section.offset : section.offset + section.size]
        self.code += bytes(section.size) if is_empty else content
        return start

    def _relocate(self, place: int, symbol: _Symbol, starts: dict[int, int], addend: int) -> None:
        """Note that an address is stored at this place."""
        if symbol.section in starts:
            target = starts[symbol.section] + symbol.value
        elif symbol.section != _UNDEFINED:
            raise CannotLink(f"{symbol.name} is in no section that is kept")
        elif symbol.name in self.exported:
            target = self.exported[symbol.name]
        elif symbol.name in _USABLE and addend == 0:
            self.symbols.setdefault(symbol.name, []).append(place)
            return
        else:
            raise CannotLink(f"{symbol.name} is unknown")
        struct.pack_into("<Q", self.code, place, target + addend)
        self.relative.append(place)


def _sections(elf: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", elf, 40)
    (count,) = struct.unpack_from("<H", elf, 60)
    rows = struct.iter_unpack("<IIQQQQIIQQ", elf[table : table + 64 * count])
    return [
        _Section(kind, flags, offset, size, info, max(1, alignment))
        for _, kind, flags, _, offset, size, _, info, alignment, _ in rows
    ]


def _symbols(elf: bytes, sections: list[_Section]) -> list[_Symbol]:
    """LLVM writes one table of symbols and one of names."""
    table = next(section for section in sections if section.kind == _SYMBOLS)
    names = next(section for section in sections if section.kind == _NAMES)
    rows = struct.iter_unpack("<IBBHQQ", elf[table.offset : table.offset + table.size])
    return [
        _Symbol(_text(elf, names.offset + name), section, value, size)
        for name, _, _, section, value, size in rows
    ]


def _text(elf: bytes, start: int) -> str:
    return elf[start : elf.index(0, start)].decode()
