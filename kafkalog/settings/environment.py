"""Environment variables as configuration keys, by the rule of Apache Kafka's container image.

The prefix is removed and the rest lower-cased; then ``___`` is ``-``, ``__`` is ``_`` and ``_`` is
``.``. ``KAFKALOG_`` beats ``KAFKA_`` beats ``KAFKA_CFG_``. Never reads the environment itself: the
mapping is passed in. What start scripts and Kubernetes service links inject is ignored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalog.settings.setting_tables import BROKER_LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping

CFG_PREFIX = "KAFKA_CFG_"
_PREFIXES = (CFG_PREFIX, "KAFKA_", "KAFKALOG_")  # weakest first

# Variables of Kafka's start scripts and of this project's own tools and commands.
_NOT_SETTINGS = re.compile(
    r"KAFKA_(?:.*_OPTS|OPTS|JMX_.*|LOG4J_.*|VERSION|HOME|CLUSTER_ID|GC_LOG.*|MODE)"
    r"|KAFKALOG_(?:KERNEL_CACHE|ORACLE|ORACLE_.*|VERSION|HOME)"
    r"|KAFKALOG_(?:URL|USER|PASSWORD_FILE|TOKEN_FILE|CA_FILE|CLIENT_CERT|CLIENT_KEY)"
)
# KAFKALOG_SERVICE_HOST, KAFKALOG_PORT=tcp://..., KAFKALOG_PORT_8082_TCP_ADDR
_SERVICE_LINK = re.compile(r"(?:.*_)?(?:SERVICE_.*|PORT|PORT_.*)")
_LINK_VALUE = re.compile(r"(?:tcp|udp|sctp)://")
_UNDERSCORES = re.compile(r"_{1,3}")
_MEANING = {"_": ".", "__": "_", "___": "-"}


def key_of_variable(suffix: str) -> str:
    """``LOG_RETENTION_MS`` to ``log.retention.ms``; suffix is the name without its prefix."""
    return _UNDERSCORES.sub(lambda found: _MEANING[found.group()], suffix.lower())


def settings_of_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Key -> (value, variable) of every variable that is meant as a setting."""
    found: dict[str, tuple[str, str]] = {}
    for prefix in _PREFIXES:
        for variable in sorted(environment):
            if not variable.startswith(prefix) or _NOT_SETTINGS.fullmatch(variable):
                continue
            if prefix == "KAFKA_" and variable.startswith(CFG_PREFIX):
                continue
            suffix, value = variable.removeprefix(prefix), environment[variable]
            key = key_of_variable(suffix)
            is_link = _LINK_VALUE.match(value) or (
                key not in BROKER_LEVEL and _SERVICE_LINK.fullmatch(suffix)
            )
            if suffix and not is_link:
                found[key] = (value, variable)
    return found
