"""Arrow, where pyarrow is installed (``pip install 'kafkalog[arrow]'``).

pyarrow takes a tenth of a second to import and tens of megabytes, so that is done when the first
request asks for Arrow, away from the event loop; without it such requests are refused.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import ARROW

if TYPE_CHECKING:
    from kafkalog.format.wire.arrow_reader import ArrowReader
    from kafkalog.format.wire.arrow_writer import ArrowWriter
    from kafkalog.format.wire.record_writer import Bounds, RecordShape, RecordWriter
    from kafkalog.server.api import Api


class ArrowFormats(NamedTuple):
    """What needs pyarrow."""

    reader: type[ArrowReader]
    writer: type[ArrowWriter]


@functools.cache
def _formats() -> ArrowFormats | None:
    """None without pyarrow."""
    try:
        from kafkalog.format.wire.arrow_reader import ArrowReader
        from kafkalog.format.wire.arrow_writer import ArrowWriter
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        return None
    return ArrowFormats(ArrowReader, ArrowWriter)


async def load_arrow(api: Api, refusal: int) -> ArrowFormats:
    """The formats; ApiError with the number ``refusal`` (406 or 415) without pyarrow."""
    found = _formats() if _formats.cache_info().currsize else await api.blocking(_formats)
    if found is None:
        raise ApiError(
            refusal,
            f"{ARROW} needs pyarrow, which is not installed here: pip install 'kafkalog[arrow]'.",
        )
    return found


def arrow_records(
    shape: RecordShape, bounds: Bounds, *, max_decompressed_bytes: int
) -> RecordWriter:
    """A writer for one answer, once ``load_arrow`` has found one (`WriterFactory`)."""
    found = _formats()
    assert found is not None, "load_arrow comes first"
    return found.writer(shape, bounds, max_decompressed_bytes=max_decompressed_bytes)
