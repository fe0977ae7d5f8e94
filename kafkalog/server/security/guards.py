"""Guards: what stands before the handlers, the same at every port. Without one it costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.server.security.cors import Cors
from kafkalog.server.security.gate import AccessFiles, Gate
from kafkalog.server.security.hosts import Hosts
from kafkalog.server.security.rates import RateLimits

if TYPE_CHECKING:
    from kafkalog.server.api import Api


@dataclass(frozen=True, slots=True)
class Guards:
    """None: the configuration wants no such guard."""

    gate: Gate | None
    cors: Cors | None
    rates: RateLimits | None
    hosts: Hosts

    @classmethod
    def of(cls, api: Api, files: AccessFiles) -> Guards:
        """Those that the configuration wants."""
        config = api.config
        gate = Gate(api, files) if Gate.is_needed(config) else None
        return cls(gate, Cors.of(config), RateLimits.of(config), Hosts.of(config))
