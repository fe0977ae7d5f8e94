"""All compiled kernels as one file of machine code, loaded without numba.

numba and LLVM take 130 MB and half a second of a process that only calls what was compiled before.
`link.py` writes the file from what numba has cached, with a function around each kernel that
Python can call. Here it is copied into memory, its addresses are filled in, and the functions are
handed out. The name of the file carries the digest of all kernel sources. A file that is missing
or damaged, or another system than CPython and Linux on x86-64, leaves the work to numba.

    CRC-32 of the rest, length of the JSON   4 bytes each, little endian
    JSON                                     {"kernels": {name: place}, "relative": [place],
                                              "symbols": {name: [place]}}
    machine code

At each place of "relative" are eight bytes that grow by the address of the code, at each place of
"symbols" the address of that symbol is stored.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import sys
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkalog.kernels import cache

if TYPE_CHECKING:
    from collections.abc import Callable

IS_SUPPORTED = (
    (os.uname().sysname, os.uname().machine, sys.implementation.name)
    == ("Linux", "x86_64", "cpython")
    and object.__basicsize__ == 16  # no debug build, no build without the interpreter lock
)
PREFIX = struct.Struct("<II")
NDARRAY_TYPE = "PyArray_Type"
"""numpy's type of arrays; every other symbol is the C library's or the interpreter's."""

_ADDRESS = struct.Struct("<Q")
_METH_FASTCALL = 0x80


class _Method(ctypes.Structure):
    """PyMethodDef of the interpreter."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_kept: list[object] = []
"""What the functions point into. Never freed: a thread may be in a kernel when the process ends."""


def load() -> dict[str, Callable[..., Any]] | None:
    """The kernels by `module:function`, or None where there is no usable image."""
    if not IS_SUPPORTED:
        return None
    name = cache.image_name()
    for root in cache.image_roots():
        try:
            with open(os.path.join(root, name), "rb") as file:
                return functions(file.read())
        except (OSError, ValueError, struct.error):
            continue
    return None


def functions(image: bytes) -> dict[str, Callable[..., Any]]:
    """What is in an image.

    ValueError or struct.error when it is damaged, OSError when the system allows no new code.
    """
    crc, json_bytes = PREFIX.unpack_from(image)
    if zlib.crc32(image[4:]) != crc:
        raise ValueError("damaged image")
    table = json.loads(image[PREFIX.size : PREFIX.size + json_bytes])
    code = image[PREFIX.size + json_bytes :]
    process = ctypes.PyDLL(None)
    memory = mmap.mmap(-1, len(code), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = code
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for place in table["relative"]:
        _ADDRESS.pack_into(memory, place, start + _ADDRESS.unpack_from(code, place)[0])
    for symbol, places in table["symbols"].items():
        address = id(np.ndarray) if symbol == NDARRAY_TYPE else _address(process, symbol)
        for place in places:
            _ADDRESS.pack_into(memory, place, address)
    process.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if process.mprotect(start, len(memory), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        raise OSError("mprotect")
    _kept.append(memory)
    process.Py_IncRef(ctypes.py_object(_kept))
    make = process.PyCFunction_NewEx
    make.argtypes, make.restype = (ctypes.c_void_p,) * 3, ctypes.py_object
    found = {}
    for name, place in table["kernels"].items():
        method = _Method(name.rpartition(":")[2].encode(), start + place, _METH_FASTCALL, None)
        _kept.append(method)
        found[name] = make(ctypes.addressof(method), None, None)
    return found


def _address(process: ctypes.CDLL, symbol: str) -> int:
    """ValueError when neither the interpreter nor the C library has it."""
    return ctypes.addressof(ctypes.c_char.in_dll(process, symbol))
