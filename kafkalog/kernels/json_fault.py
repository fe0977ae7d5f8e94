"""Why a JSON text is refused, for the kernels of `json_text.py` and their callers."""

from __future__ import annotations

import enum


class JsonFault(enum.IntEnum):
    """Why a text is refused; the kernels return `-fault` and leave the byte in `state[0]`."""

    SYNTAX = 1
    BAD_UTF8 = 2
    TOO_DEEP = 3
    DUPLICATE_KEY = 4
    LONG_NUMBER = 5
    LONE_SURROGATE = 6
    BYTE_ORDER_MARK = 7
    TOO_MANY_KEYS = 8
    CONTROL_CHARACTER = 9
