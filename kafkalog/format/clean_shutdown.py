"""The clean shutdown marker's content. Its existence alone means "clean"; only the epoch is read.

Pure functions. Source: Kafka's `CleanShutdownFileHandler`, log-format.md 11.
"""

from __future__ import annotations

import json

VERSION = 0
NO_BROKER_EPOCH = -1


def encode_clean_shutdown(broker_epoch: int = NO_BROKER_EPOCH) -> bytes:
    """The file's JSON, byte for byte as Kafka writes it."""
    return f'{{"version":{VERSION},"brokerEpoch":{broker_epoch}}}'.encode()


def decode_broker_epoch(data: bytes) -> int | None:
    """The epoch; None for anything that cannot be read, which never makes a shutdown unclean."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None
