"""Bounds of the signed integers on disk and in Kafka's configs: defined here and nowhere else.

A field's own bound is named after the field and stands beside it (``OFFSET_MAX``). Kernels, which
import nothing, write them as literals.
"""

from __future__ import annotations

INT16_MAX = 2**15 - 1
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
