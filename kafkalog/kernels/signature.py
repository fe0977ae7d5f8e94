"""What a kernel takes and gives, said without numba."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Array:
    """An array in C order of items of one type, by numba's name."""

    name: str
    dimensions: int
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, by numba's name. Called with the types of the arguments it is a signature."""

    name: str

    def __call__(self, *arguments: Scalar | Array) -> Signature:
        """A function with this result."""
        return Signature(self, arguments)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a kernel takes and gives."""

    result: Scalar
    arguments: tuple[Scalar | Array, ...]


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """One kernel of this process and where its machine code came from."""

    module: str
    name: str
    signature: Signature
    keeps_gil: bool
    compiled: Any
    from_cache: bool
