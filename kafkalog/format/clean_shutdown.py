"""The clean shutdown marker's content. Its existence alone means "clean"; nobody reads it here.

Pure functions. Source: Kafka's `CleanShutdownFileHandler`, log-format.md 11.
"""

from __future__ import annotations

VERSION = 0
NO_BROKER_EPOCH = -1


def encode_clean_shutdown() -> bytes:
    """The file's JSON, byte for byte as Kafka writes it where no epoch is known."""
    return f'{{"version":{VERSION},"brokerEpoch":{NO_BROKER_EPOCH}}}'.encode()
