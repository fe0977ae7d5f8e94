"""The whole table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.proxies import consumers, metadata, produce, reads, v3_admin, v3_produce

if TYPE_CHECKING:
    from tests.proxies.case import Case

CASES: tuple[Case, ...] = (
    *metadata.CASES,
    *produce.CASES,
    *reads.CASES,
    *consumers.CASES,
    *v3_admin.CASES,
    *v3_produce.CASES,
)
