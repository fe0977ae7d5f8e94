"""Goal: what a client reads about damaged files is true and keeps their paths inside.
Method: the body of each kind of CorruptData.
"""

from __future__ import annotations

import pytest

from kafkalog.errors import CorruptBatch, CorruptCheckpoint, CorruptData, CorruptIndex
from kafkalog.server.protocol.errors import error_body


@pytest.mark.parametrize("kind", [CorruptData, CorruptBatch, CorruptIndex, CorruptCheckpoint])
def test_only_a_corrupt_batch_is_called_one(kind: type[CorruptData]) -> None:
    body = error_body(kind("bad", file="/data/a/t-0/secret", position=1))
    message = str(body["message"])
    assert ("record batch is corrupt" in message) is (kind is CorruptBatch)
    assert ("partition is out of service" in message) is (kind is not CorruptBatch)
    assert "secret" not in str(body)
