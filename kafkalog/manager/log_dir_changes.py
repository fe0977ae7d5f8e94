"""LogDirChanges: what of the log directories changes while they serve: cordons, the rate of moves.

Joins the configuration to the directories and to the moves between them; owns no state. Under the
topics lock, or before anything serves. Source: Kafka 4.3 (KIP-1066) for cordons, Kafka's
``DynamicReplicationConfig`` for the rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import InvalidRequest
from kafkalog.manager.broker_config import cordoned_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.manager.log_manager import LogManager

CORDONED_KEY = "cordoned.log.dirs"

_log = structlog.get_logger(__name__)


class LogDirChanges:
    """See the module."""

    def __init__(self, manager: LogManager) -> None:
        # constant after construction
        self._manager = manager

    def validate(self, dynamic: Mapping[str, str]) -> None:
        """InvalidRequest when cordons are set that name no log directory.

        What was stored before stays: a directory may have left ``log.dirs`` since.
        """
        manager, text = self._manager, dynamic.get(CORDONED_KEY)
        config = manager.rules.log_dir_config(dynamic)
        if text is None or text == manager.registry.state.broker_configs.get(CORDONED_KEY):
            return
        # As the file names them, and as they are shown.
        known = [*manager.config.log_dirs, *(unit.log_dir.path for unit in manager.units)]
        fault = cordoned_fault(known, config.cordoned_log_dirs)
        if fault is not None:
            message = f"Invalid value {text} for configuration {CORDONED_KEY}: {fault}"
            raise InvalidRequest(message, key=CORDONED_KEY, value=text)

    def apply(self, dynamic: Mapping[str, str]) -> None:
        """Let the configuration count, with these dynamic broker configs."""
        manager = self._manager
        config = manager.rules.log_dir_config(dynamic)
        manager.moves.limit(config.move_bytes_per_second)
        paths = set(map(manager.absolute, config.cordoned_log_dirs))
        for log_dir in (unit.log_dir for unit in manager.units):
            is_cordoned = config.cordoned_log_dirs == ("*",) or log_dir.path in paths
            if is_cordoned != log_dir.is_cordoned:
                log_dir.is_cordoned = is_cordoned
                tell = "log_dir_cordoned" if is_cordoned else "log_dir_uncordoned"
                _log.info(tell, log_dir=log_dir.path)
