"""The two ways in which a compressed stream is refused, said alike by every codec."""

from __future__ import annotations

from kafkalog.errors import DecompressedTooLarge, UnsupportedCompression


def too_large(max_bytes: int) -> DecompressedTooLarge:
    """More than the caller's limit is declared or met."""
    return DecompressedTooLarge(
        f"The batch inflates to more than {max_bytes} bytes", max_bytes=max_bytes
    )


def undecodable(codec: str, reason: str) -> UnsupportedCompression:
    """The stream is not what the codec writes."""
    return UnsupportedCompression(f"The records do not decode as {codec}: {reason}")
