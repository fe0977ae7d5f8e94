"""Environment variables as configuration keys, by the rule of Apache Kafka's container image.

The prefix is removed and the rest lower-cased; then ``___`` is ``-``, ``__`` is ``_`` and ``_`` is
``.``. ``KAFKALOG_`` beats ``KAFKA_`` beats ``KAFKA_CFG_``. A variable of a known key with ``_FILE``
behind it names a file that holds the value, as secrets are mounted. Reads neither the environment
nor a file itself: both are passed in. Ignored is what start scripts inject, and what Kubernetes
injects for a Service: its address, and what stands beside one (``..._PORT`` alone is mistyped).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.errors import InvalidConfig
from kafkalog.settings.setting_tables import BROKER_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CFG_PREFIX = "KAFKA_CFG_"
_PREFIXES = (CFG_PREFIX, "KAFKA_", "KAFKALOG_")  # weakest first

# Variables of Kafka's start scripts and of this project's own tools and commands.
_NOT_SETTINGS = re.compile(
    r"KAFKA_(?:.*_OPTS|OPTS|JMX_.*|LOG4J_.*|VERSION|HOME|CLUSTER_ID|GC_LOG.*|MODE)"
    r"|KAFKALOG_(?:KERNEL_CACHE|ORACLE|ORACLE_.*|VERSION|HOME|SERVER_PROPERTIES)"
    r"|KAFKALOG_(?:URL|USER|PASSWORD_FILE|TOKEN_FILE|CA_FILE|CLIENT_CERT|CLIENT_KEY)"
)
# KAFKALOG_SERVICE_HOST, KAFKALOG_PORT_8082_TCP_ADDR
_SERVICE_ADDRESS = re.compile(r".+_(?:SERVICE_HOST|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?)")
# KAFKALOG_SERVICE_PORT_HTTP, KAFKALOG_PORT: of the service in front
_SERVICE_PORT = re.compile(r"(.+?)_(?:SERVICE_PORT(?:_.*)?|PORT)")
_LINK_VALUE = re.compile(r"(?:tcp|udp|sctp)://")  # KAFKALOG_PORT=tcp://...
_UNDERSCORES = re.compile(r"_{1,3}")
_MEANING = {"_": ".", "__": "_", "___": "-"}
_FILE_SUFFIX = "_FILE"


@dataclass(frozen=True, slots=True)
class GivenText:
    """A key's text, the variable that gave it, and whether that named a file that holds it."""

    text: str
    variable: str
    is_from_file: bool = False


def key_of_variable(suffix: str) -> str:
    """``LOG_RETENTION_MS`` to ``log.retention.ms``; suffix is the name without its prefix."""
    return _UNDERSCORES.sub(lambda found: _MEANING[found.group()], suffix.lower())


def settings_of_environment(
    environment: Mapping[str, str], read_file: Callable[[str], str]
) -> dict[str, GivenText]:
    """Key -> text of every variable that is meant as a setting.

    read_file gives the content of the file of that path; a line end at its end is no part of the
    value. InvalidConfig when a variable stands there both with ``_FILE`` and without; what
    read_file raises.
    """
    found: dict[str, GivenText] = {}
    for prefix in _PREFIXES:
        for variable in sorted(environment):
            if not variable.startswith(prefix) or _NOT_SETTINGS.fullmatch(variable):
                continue
            if prefix == "KAFKA_" and variable.startswith(CFG_PREFIX):
                continue
            suffix, value = variable.removeprefix(prefix), environment[variable]
            key = key_of_variable(suffix)
            plain = _without_file(suffix)
            if plain is not None:
                if prefix + plain in environment:
                    message = f"{prefix}{plain} and {variable} are both set: one of them"
                    raise InvalidConfig(message, key=key_of_variable(plain))
                text = read_file(value).removesuffix("\n").removesuffix("\r")
                found[key_of_variable(plain)] = GivenText(text, variable, is_from_file=True)
                continue
            is_link = _LINK_VALUE.match(value) or (
                key not in BROKER_LEVEL and _is_of_service(variable, environment)
            )
            if suffix and not is_link:
                found[key] = GivenText(value, variable)
    return found


def _is_of_service(variable: str, environment: Mapping[str, str]) -> bool:
    """Whether Kubernetes injected it: there is a service of that name."""
    if _SERVICE_ADDRESS.fullmatch(variable):
        return True
    port = _SERVICE_PORT.fullmatch(variable)
    return port is not None and f"{port[1]}_SERVICE_HOST" in environment


def _without_file(suffix: str) -> str | None:
    """``HTTP_PORT`` of ``HTTP_PORT_FILE``; None of a key's own name (``HTTP_AUTH_FILE``)."""
    plain = suffix.removesuffix(_FILE_SUFFIX)
    if plain == suffix or key_of_variable(suffix) in BROKER_LEVEL:
        return None
    return plain if key_of_variable(plain) in BROKER_LEVEL else None
