"""The topic configs that a log directory's registry holds, for tools without a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.integers import FormatError
from kafkalog.manager.log_dir import REGISTRY_FILE
from kafkalog.manager.topic_registry import decode_registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.env.filesystem import ReadFilesystem


def registered_configs(log_dir: str, filesystem: ReadFilesystem) -> Mapping[str, Mapping[str, str]]:
    """Overrides by topic, as the user wrote them; empty without a registry that can be read.

    OSError.
    """
    try:
        state = decode_registry(filesystem.read_file(f"{log_dir}/{REGISTRY_FILE}"))
    except (FileNotFoundError, NotADirectoryError, FormatError):
        return {}
    return {name: topic.overrides for name, topic in state.topics.items()}
