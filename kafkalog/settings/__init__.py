"""Kafka property names to validated, frozen configuration.

``load_settings(file_data, environment, overrides) -> Settings`` is the entry point; ``tables``
declares every key. Nothing here reads files, the environment or the clock.
"""

from __future__ import annotations

from kafkalog.settings.server_config import ServerConfig
from kafkalog.settings.settings import Notice, ResolvedValue, Settings, Source, load_settings

__all__ = ["Notice", "ResolvedValue", "ServerConfig", "Settings", "Source", "load_settings"]
