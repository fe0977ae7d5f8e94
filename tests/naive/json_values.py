"""JSON values in columns, one value at a time by Python's parser: a twin of ``JsonDecoder``."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

_LARGEST = Fraction(2) ** 128 - Fraction(2) ** 104
_TOO_LARGE = Fraction(2) ** 128 - Fraction(2) ** 103
"""Above the largest 32-bit float, and nearer to the one that there is not."""


class Fault(Exception):
    """A value is not of its type."""


def plain_json(value: bytes | None, wanted: pa.DataType) -> Any:
    """The value as ``to_pylist`` has it. Raises Fault."""
    if value is None:
        return None
    try:
        document = json.loads(value.decode(), parse_float=_number, parse_constant=_constant)
    except ValueError as error:
        raise Fault from error
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # half a surrogate pair
        raise Fault from error
    if not isinstance(document, dict):
        raise Fault
    return _of(document, wanted)


class _Number(float):
    """A number with a point or an exponent, as it is written."""

    text: str


def _number(text: str) -> float:
    number = _Number(text)
    number.text = text
    if math.isinf(number):
        raise Fault
    return number


def _constant(text: str) -> float:
    raise Fault(text)


def _narrow(value: int | _Number) -> float:
    """The 32-bit float that is nearest to what is written; of two the even one."""
    exact = Fraction(value.text if isinstance(value, _Number) else value)
    if abs(exact) >= _TOO_LARGE:
        raise Fault
    near = np.float32(float(min(max(exact, -_LARGEST), _LARGEST)))
    around = [near, *(np.nextafter(near, np.float32(each)) for each in (-np.inf, np.inf))]
    finite = [each for each in around if np.isfinite(each)]
    return float(min(finite, key=lambda each: (abs(Fraction(float(each)) - exact), _is_odd(each))))


def _is_odd(number: np.float32) -> bool:
    return bool(number.view(np.uint32) & 1)


def _of(value: Any, wanted: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(wanted):
        if not isinstance(value, dict):
            raise Fault
        for field in wanted:
            if not field.nullable and value.get(field.name) is None:
                raise Fault
        return {field.name: _of(value.get(field.name), field.type) for field in wanted}
    if pa.types.is_list(wanted):
        if not isinstance(value, list):
            raise Fault
        return [_of(each, wanted.value_type) for each in value]
    if pa.types.is_integer(wanted):
        if type(value) is not int or not -(1 << wanted.bit_width - 1) <= value < 1 << (
            wanted.bit_width - 1
        ):
            raise Fault
        return value
    if pa.types.is_floating(wanted):
        if type(value) not in (int, _Number):
            raise Fault
        return _narrow(value) if wanted == pa.float32() else float(value)
    if type(value) is not (bool if pa.types.is_boolean(wanted) else str):
        raise Fault
    return value
