"""ServerConfig: the configuration of the HTTP server and of the process; plain and frozen.

Created and validated by ``load_settings``. Limits have the keys of Kafka's socket server where
these exist, and kafkalog's own ``http.*`` keys otherwise.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from dataclasses import dataclass

from kafkalog.observe.metrics_options import MetricsOptions, PartitionLevel

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_EVERY = frozenset(("0.0.0.0", "::"))  # of IPv4, of IPv6


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A field is its key with underscores. Bytes count after inflation of a compressed body."""

    http_host: str = "127.0.0.1"
    http_port: int = 8082
    http_auth: tuple[str, ...] | None = None
    http_auth_file: str | None = None
    http_auth_tries_per_minute: int = 10
    http_mtls_principal: tuple[str, ...] = ("cn",)
    http_jwt_jwks_file: str | None = None
    http_jwt_issuer: str | None = None
    http_jwt_audience: tuple[str, ...] = ()
    http_jwt_principal_claim: str = "sub"
    http_jwt_clock_skew_ms: int = 30_000
    http_jwt_algorithms: tuple[str, ...] = ("RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA")
    http_tls_cert_file: str | None = None
    http_tls_key_file: str | None = None
    http_tls_client_ca_file: str | None = None
    http_tls_min_version: str = "1.2"
    http_tls_handshake_timeout_ms: int = 10_000
    http_acl_file: str | None = None
    http_metrics_open: bool = False
    access_control_allow_origin: tuple[str, ...] = ()
    access_control_allow_methods: tuple[str, ...] = _METHODS
    access_control_allow_headers: tuple[str, ...] = (
        "Accept",
        "Authorization",
        "Content-Type",
        "Kafka-Acks",
        "Kafka-Base-Sequence",
        "Kafka-Key",
        "Kafka-Producer-Epoch",
        "Kafka-Producer-Id",
        "Last-Event-ID",
        "Prefer",
        "X-Request-Id",
    )
    http_allowed_hosts: tuple[str, ...] = ()
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_kafka_aliases: bool = True
    metrics_kafka_exporter_names: bool = False
    metrics_partition_level: str = "partition"
    metrics_partition_limit: int = 2_000
    metrics_topic_include: str | None = None
    metrics_topic_exclude: str | None = None
    admin_port: int | None = None
    admin_host: str = "127.0.0.1"
    console_records: bool = True
    socket_request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = 268_435_456
    http_max_inflight_requests: int = 1_000
    http_max_requests_per_second: int = 0
    http_max_bytes_per_second: int = 0
    http_max_streams: int = 1_000
    http_stream_max_ms: int = 600_000
    http_max_records: int = 100_000
    http_max_batch_entries: int = 1_000
    http_max_wait_ms: int = 60_000
    http_max_fetch_bytes: int = 67_108_864
    fetch_raw_verify: str = "first"  # or always
    http_v2_dialect: str = "auto"  # auto, confluent, strimzi, karapace
    http_trusted_proxies: tuple[str, ...] = ()
    http_body_timeout_ms: int = 30_000
    http_header_timeout_ms: int = 10_000
    http_write_stall_ms: int = 90_000
    http_stall_ms: int | None = None
    max_connections: int = 2_147_483_647
    connections_max_idle_ms: int = 600_000
    max_decompressed_batch_bytes: int = 67_108_864
    auto_create_topics_enable: bool = True
    shutdown_grace_ms: int = 0
    unusable_log_dirs_wait: bool = False
    log_format: str | None = None
    log_level: str = "info"

    @property
    def metrics_options(self) -> MetricsOptions:
        """``metrics.*`` but for the port; re.error for what is no regular expression."""
        include, exclude = self.metrics_topic_include, self.metrics_topic_exclude
        return MetricsOptions(
            partition_level=PartitionLevel(self.metrics_partition_level),
            partition_limit=self.metrics_partition_limit,
            topic_include=None if include is None else re.compile(include),
            topic_exclude=None if exclude is None else re.compile(exclude),
            has_kafka_aliases=self.metrics_kafka_aliases,
            has_kafka_exporter_names=self.metrics_kafka_exporter_names,
        )

    @property
    def remembers_checked_batches(self) -> bool:
        """Whether a raw fetch need not check what was checked before: ``fetch.raw.verify``."""
        return self.fetch_raw_verify == "first"

    @property
    def keep_alive_seconds(self) -> float:
        """Idle time of a connection: ``connections.max.idle.ms``."""
        return self.connections_max_idle_ms / 1000

    @property
    def stall_ms(self) -> int:
        """Time in which a client must take a part of its answer: ``http.write.stall.ms``."""
        return self.http_write_stall_ms if self.http_stall_ms is None else self.http_stall_ms

    def body_timeout_seconds(self, declared_bytes: int) -> float:
        """Time for a body of declared_bytes (0 when unknown): the set time and 1 s per MiB."""
        return self.http_body_timeout_ms / 1000 + declared_bytes / 1_048_576

    @property
    def exposed(self) -> tuple[str, str] | None:
        """The first setting, with its value, by which other machines can connect; None: none."""
        places = [("http.host", self.http_host)]
        if self.admin_port is not None:
            places.append(("admin.host", self.admin_host))
        if self.metrics_port is not None:
            places.append(("metrics.host", self.metrics_host))
        return next((place for place in places if not is_loopback(place[1])), None)


def overlap(host: str, other: str) -> bool:
    """Whether two listeners of one port would conflict.

    Every address is that of one family: a listener of ``::`` takes no connection of IPv4.
    """
    pairs = itertools.product(_addresses(host), _addresses(other))
    return any(
        here == there or ((":" in here) == (":" in there) and not _EVERY.isdisjoint((here, there)))
        for here, there in pairs
    )


def _addresses(host: str) -> frozenset[str]:
    """Normalised; an empty host means every address. A name is not resolved."""
    if not host:
        return _EVERY
    if host == "localhost":
        return frozenset(("127.0.0.1", "::1"))
    try:
        return frozenset((str(ipaddress.ip_address(host)),))
    except ValueError:
        return frozenset((host.lower(),))  # taken for one of IPv4


def is_loopback(host: str) -> bool:
    """Whether it is a loopback name or address, which only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name: taken as reachable from elsewhere
        return False
