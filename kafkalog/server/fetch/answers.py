"""Bodies of native record answers as the API's description has them (pydantic, never run)."""

from __future__ import annotations

from pydantic import RootModel

from kafkalog.server.admin.answers_logs import Body, Header


class ShownRecord(Body):
    """A record's members, those that ``fields`` names; headers only where there are some.

    Key and value are any JSON, text or base64, as their formats say; null is a null.
    """

    topic: str | None = None
    key: object = None
    value: object = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    headers: list[Header] | None = None


class NativeRecordPage(RootModel[list[ShownRecord]]):
    """In offset order within each partition."""
